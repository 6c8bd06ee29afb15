import type { Change } from "../watch/changes.ts";
import { type Paint, paintState } from "./paint.ts";
import { plainText } from "./table.ts";
import { formatAge, formatClock } from "./time.ts";

/** A change as a line for logs: `2027-01-01T10:00:00.000Z  <id>  live -> paused  name  (detail)`. */
export function renderChange(change: Change): string {
  const { at, session_id, from, to, name, detail } = change;
  const move = from === undefined ? to : `${from} -> ${to}`;
  return plainText([at, session_id, move, name, detail && `(${detail})`].filter(Boolean).join("  "));
}

/** A change as a line for the screen: `10:00:00 <id> live → paused name (detail)`, in local time. */
export function renderMove(change: Change, paint: Paint, now?: Date): string {
  const { session_id, from, to, name, detail } = change;
  const at = new Date(change.at);
  const ago = now && `${formatAge(now.getTime() - at.getTime())} ago`.padStart(8);
  const move = [from, to].filter((state) => state !== undefined);
  const states = move.map((state) => paintState(paint, state)).join(paint("dim", " → "));
  const rest = [name, detail && `(${detail})`].filter((text) => text !== undefined).map(plainText);
  return [paint("dim", formatClock(at)), ago, plainText(session_id), states, ...rest]
    .filter((text) => text !== undefined)
    .join("  ");
}
