/**
 * Writes the tables in docs/guide/{errors,limits,states}.md from the contract, between their markers. `--check` writes
 * nothing and fails when a page differs.
 */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ERRORS } from "@vivarium/contract/api/errors";
import { LIMITS, SIZES } from "@vivarium/contract/api/limits";
import { TRANSITIONS } from "@vivarium/contract/api/states";
import { LIMIT_MEANINGS } from "./limit-meanings.ts";
import { writeOrCheck } from "./write-or-check.ts";

const GUIDE = join(import.meta.dirname, "..", "docs", "guide");
const AGAIN = "npm run docs";

const TABLES: { page: string; name: string; print: () => string }[] = [
  { page: "errors.md", name: "errors", print: errorTable },
  { page: "limits.md", name: "limits", print: limitTable },
  { page: "limits.md", name: "sizes", print: sizeTable },
  { page: "states.md", name: "transitions", print: transitionTable },
];

function errorTable(): string {
  return table(
    ["code", "HTTP", "retry?", "Retry-After", "meaning"],
    Object.entries(ERRORS).map(([code, row]) => [
      `\`${code}\``,
      String(row.status),
      row.retryable ? "yes" : "no",
      "retryAfterS" in row ? `${row.retryAfterS} s` : "–",
      row.meaning,
    ]),
  );
}

function limitTable(): string {
  const inForce = Object.entries(LIMIT_MEANINGS).filter(([, meaning]) => meaning !== null);
  return table(
    ["limit", "value", "what it bounds"],
    inForce.map(([name, meaning]) => [
      `\`${name}\``,
      amount(name, LIMITS[name as keyof typeof LIMITS]),
      String(meaning),
    ]),
  );
}

function sizeTable(): string {
  return table(
    ["size", "vCPUs", "memory", "disk (virtual)"],
    Object.entries(SIZES).map(([name, size]) => [
      `\`${name}\``,
      String(size.vcpus),
      `${size.mem_mb} MiB`,
      `${size.disk_gb} GiB`,
    ]),
  );
}

function transitionTable(): string {
  return table(
    ["from", "event", "to", "new machine", "end reason"],
    TRANSITIONS.map((row) => [
      row.from ?? "(none)",
      `\`${row.event}\``,
      row.to,
      row.newMachine ? "yes" : "",
      row.endReason === undefined ? "" : `\`${row.endReason}\``,
    ]),
  );
}

/** Formats a limit with the unit that its name ends in. */
function amount(name: string, value: number): string {
  if (name.endsWith("Ms")) return inLargestUnit(value, DURATIONS);
  if (name.endsWith("Bytes")) return inLargestUnit(value, BYTES);
  return name.endsWith("Chars") ? `${value} characters` : String(value);
}

const DURATIONS: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
  [1, "ms"],
];
const BYTES: [number, string][] = [
  [1024 * 1024, "MiB"],
  [1024, "KiB"],
  [1, "bytes"],
];

/** Formats a value in the largest unit that divides it; days only from 2 d, so that 24 h stays 24 h. */
function inLargestUnit(value: number, units: [number, string][]): string {
  const fitting = units.find(([size, name]) => value % size === 0 && (name !== "d" || value >= 2 * size));
  const [size, name] = fitting ?? [1, ""];
  return `${value / size} ${name}`;
}

/** Renders a table, padded as the formatter pads it, so that both produce the same bytes. */
function table(header: string[], rows: string[][]): string {
  const widths = header.map((cell, at) =>
    Math.max(3, ...[cell, ...rows.map((row) => row[at] ?? "")].map(chars)),
  );
  const line = (cells: string[]) => `| ${cells.map((cell, at) => pad(cell, widths[at] ?? 0)).join(" | ")} |`;
  const rule = `| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`;
  return [line(header), rule, ...rows.map(line)].join("\n");
}

const chars = (text: string) => [...text].length;
const pad = (text: string, width: number) => text + " ".repeat(width - chars(text));

function replaceBetweenMarkers(text: string, page: string, name: string, content: string): string {
  const start = `<!-- ${name}: printed by \`${AGAIN}\` -->`;
  const end = `<!-- /${name} -->`;
  const from = text.indexOf(start);
  const to = text.indexOf(end);
  if (from < 0 || to < from) throw new Error(`docs/guide/${page} needs the lines "${start}" and "${end}"`);
  return `${text.slice(0, from + start.length)}\n\n${content}\n\n${text.slice(to)}`;
}

for (const page of new Set(TABLES.map((entry) => entry.page))) {
  const file = join(GUIDE, page);
  const printed = TABLES.filter((entry) => entry.page === page).reduce(
    (text, { name, print }) => replaceBetweenMarkers(text, page, name, print()),
    await readFile(file, "utf8"),
  );
  await writeOrCheck(file, printed, AGAIN);
}
