/** Parsers for the values of options: durations, instants, sizes, ports, pairs and lists. */
import { InvalidArgumentError } from "commander";

const UNITS_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const RFC_3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/;

/** Parses `500ms`, `30s`, `5m`, `1h` or a plain number of seconds, into milliseconds. */
export function parseDuration(text: string): number {
  const ms = text.endsWith("d") ? Number.NaN : millisecondsOf(text);
  if (!(ms >= 1)) throw new InvalidArgumentError("Expected a time such as 500ms, 30s, 5m or 1h.");
  return ms;
}

/** Parses a duration that may also be in days (`12h`, `30d`), into milliseconds. */
export function parseLongDuration(text: string): number {
  const ms = millisecondsOf(text);
  if (!(ms >= 1)) throw new InvalidArgumentError("Expected a time such as 30m, 12h or 30d.");
  return ms;
}

function millisecondsOf(text: string): number {
  const [, figure, unit = "s"] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text) ?? [];
  return Math.round(Number(figure) * (UNITS_MS[unit] ?? Number.NaN));
}

/** Parses how long a paused session is kept, into milliseconds; `never` is -1, as in the API. */
export function parsePausedTtl(text: string): number {
  return text === "never" ? -1 : parseLongDuration(text);
}

/** Parses a time from now (`90s`, `2h`, `7d`) or an instant with its zone (`2027-03-01T09:30:00Z`). */
export function parseInstant(text: string): Date {
  return instantOf(text, 1, "from now");
}

/** Parses a time before now (`90s`, `2h`, `7d`) or an instant with its zone. */
export function parseSince(text: string): Date {
  return instantOf(text, -1, "back");
}

function instantOf(text: string, sign: 1 | -1, direction: string): Date {
  if (RFC_3339.test(text) && !Number.isNaN(Date.parse(text))) return new Date(text);
  try {
    return new Date(Date.now() + sign * parseLongDuration(text));
  } catch {
    throw new InvalidArgumentError(
      `Expected a time ${direction} such as 30m, 12h or 7d, or an instant with its zone such as 2027-03-01T09:30:00Z.`,
    );
  }
}

const BYTES: Readonly<Record<string, number>> = {
  b: 1,
  ...{ kb: 1e3, mb: 1e6, gb: 1e9, tb: 1e12 },
  ...{ kib: 2 ** 10, mib: 2 ** 20, gib: 2 ** 30, tib: 2 ** 40 },
};

/** Parses `10MiB`, `1.5 GiB`, `500MB` or a plain number, into bytes; `none` is 0, which removes the cap in the API. */
export function parseCap(text: string): number {
  if (text === "none") return 0;
  const match = /^(\d+(?:\.\d+)?) ?([kmgt]?i?b)?$/i.exec(text);
  const bytes = Math.round(Number(match?.[1]) * (BYTES[(match?.[2] ?? "b").toLowerCase()] ?? Number.NaN));
  // 0 is refused: the API would remove the cap, while the user means that nothing may be sent.
  if (!match || !(bytes >= 1) || !Number.isSafeInteger(bytes)) {
    throw new InvalidArgumentError(
      "Expected a size such as 10MiB, 1.5GiB, 500MB or 4096, or none. To let nothing out: viv egress set --mode deny",
    );
  }
  return bytes;
}

/** Parses the cap of an organisation: as a session's, or `default` for the operator's default. */
export function parseOrgCap(text: string): number | "default" {
  return text === "default" ? text : parseCap(text);
}

/** Parses a whole number of GB, such as `5` or `5GB`. The service has the bounds. */
export function parseGb(text: string): number {
  const [, figure] = /^([1-9]\d{0,5}) ?(?:g|gb|gib)?$/i.exec(text) ?? [];
  if (figure === undefined) throw new InvalidArgumentError("Expected a whole number of GB, such as 5.");
  return Number(figure);
}

export function parsePort(text: string): number {
  if (!/^[1-9]\d{0,4}$/.test(text) || Number(text) > 65_535)
    throw new InvalidArgumentError("Expected a port from 1 to 65535.");
  return Number(text);
}

/** Adds one `NAME=value` of a repeatable option to those before it. */
export function collectPair(
  text: string,
  previous: Record<string, string> | undefined,
): Record<string, string> {
  const split = text.indexOf("=");
  if (split < 1) throw new InvalidArgumentError("Expected NAME=value.");
  return { ...previous, [text.slice(0, split)]: text.slice(split + 1) };
}

/** Adds the items of one `a,b` of a repeatable option to those before them. */
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

/** Checks `host:port`; IPv6 hosts are in brackets. */
export function parseListen(text: string): string {
  const match = /^(\[[0-9a-fA-F:.]+\]|[^:\s]+):(\d{1,5})$/.exec(text);
  const port = Number(match?.[2]);
  if (!match || port < 1 || port > 65_535) {
    throw new InvalidArgumentError("Expected HOST:PORT, for instance 127.0.0.1:7400.");
  }
  return text;
}

/** One more text of a repeatable option. */
export function collectText(text: string, previous: string[] | undefined): string[] {
  return [...(previous ?? []), text];
}
