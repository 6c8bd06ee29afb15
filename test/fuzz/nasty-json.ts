/** JSON that is nearly correct. */
import type { Random } from "../chaos/random.ts";

const NASTY: readonly unknown[] = [
  null,
  true,
  -1,
  -5,
  0.5,
  2 ** 31,
  2 ** 40,
  2 ** 53,
  2 ** 63,
  "",
  "NaN",
  "\u0000",
  "line\nof\u001b[31m red\u001b]0;title\u0007",
  "\ud800",
  "x".repeat(70_000),
  [],
  {},
  [[[[]]]],
];
const KEYS = ["__proto__", "constructor", "toString", "code", "truncated", "", "entries"] as const;

/** A copy in which some values, or their names, are replaced. */
export function nastier(random: Random, value: unknown, odds = 12): unknown {
  if (random.below(odds) === 0) return random.pick(NASTY);
  if (Array.isArray(value)) {
    const items = value.map((item) => nastier(random, item, odds));
    return random.below(odds) === 0 ? [...items, ...items, random.pick(NASTY)] : items;
  }
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([name, item]) => [name, nastier(random, item, odds)] as const);
  if (random.below(odds) === 0) entries.pop();
  // `__proto__` as JSON.parse makes it: a field like any other.
  return Object.fromEntries(
    random.below(odds) === 0 ? [...entries, [random.pick(KEYS), random.pick(NASTY)]] : entries,
  );
}

/** Text of a value whose fields may be invalid JSON. */
export function textOf(value: unknown): string {
  return JSON.stringify(value) ?? "undefined";
}
