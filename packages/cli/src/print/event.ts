import type { Event } from "@vivarium/sdk";
import { noPaint, type Paint } from "./paint.ts";
import { plainText } from "./table.ts";

const BAD =
  /\.(failed|refused|wake_refused|create_refused|denied|anomaly|session_capped|node_lost|lifetime_expired|gap)$/;

/** An event as a line: `2027-01-01T10:00:00.000Z  session.paused  <id>  state=paused reason=idle_timeout`. */
export function renderEvent({ created_at, type, session_id, data }: Event, paint: Paint = noPaint): string {
  const facts = Object.entries(data).map(([name, value]) => `${name}=${textOf(value)}`);
  const painted = paint(BAD.test(type) ? "red" : "green", plainText(type));
  const rest = [session_id, facts.join(" ")].filter(Boolean).map((text) => plainText(String(text)));
  return [created_at, painted, ...rest].join("  ");
}

/** A value as text, quoted where its end would not be visible otherwise. */
function textOf(value: unknown): string {
  if (typeof value === "string") return /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return Array.isArray(value) ? value.map(textOf).join(",") : JSON.stringify(value);
}
