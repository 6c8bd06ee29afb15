import { InvalidArgumentError } from "commander";

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** `500ms`, `30s`, `5m`, `1h`, or a plain number of seconds; as milliseconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text);
  const ms = Math.round(Number(match?.[1]) * (UNITS_MS[match?.[2] ?? "s"] ?? 1000));
  if (!match || ms < 1) throw new InvalidArgumentError("Expected a time such as 500ms, 30s, 5m or 1h.");
  return ms;
}

/** `NAME=value`, repeatable. */
export function collectPair(
  text: string,
  previous: Record<string, string> | undefined,
): Record<string, string> {
  const split = text.indexOf("=");
  if (split < 1) throw new InvalidArgumentError("Expected NAME=value.");
  return { ...previous, [text.slice(0, split)]: text.slice(split + 1) };
}

/** `a,b`, repeatable. */
export function collectList(text: string, previous: string[] | undefined): string[] {
  const items = text
    .split(",")
    .map((item) => item.trim())
    .filter((item) => item !== "");
  return [...(previous ?? []), ...items];
}

export function parseCount(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new InvalidArgumentError("Expected a whole number from 1.");
  return Number(text);
}

/** `host:port`; IPv6 hosts in brackets. */
export function parseListen(text: string): string {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:\s]+):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (!match || port < 1 || port > 65_535) {
    throw new InvalidArgumentError("Expected HOST:PORT, for instance 127.0.0.1:7400.");
  }
  return text;
}
