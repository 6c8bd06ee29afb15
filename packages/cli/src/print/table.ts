import { stripVTControlCharacters } from "node:util";

/** Adds colour to a cell that is already as wide as its column. Row 0 is the heading. */
export type PaintCell = (padded: string, at: { row: number; heading: string }) => string;

/** Left-aligned columns, two spaces apart, with a heading. Cells are one line and cannot steer the terminal. */
export function renderTable(headings: string[], rows: string[][], paintCell: PaintCell = plain): string {
  const lines = [headings, ...rows.map((row) => row.map(plainText))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? "").length)));
  return lines
    .map((line, row) => {
      // Blanks at the end are removed before colours are added: a painted blank would stay.
      const lastFilled = line.findLastIndex((cell) => cell.trim() !== "");
      return line
        .slice(0, lastFilled + 1)
        .map((cell, column) => (column === lastFilled ? cell.trimEnd() : cell.padEnd(widths[column] ?? 0)))
        .map((cell, column) => paintCell(cell, { row, heading: headings[column] ?? "" }))
        .join("  ");
    })
    .join("\n");
}

/** Drops empty columns from `firstOptional` on. */
export function withoutEmptyColumns(
  headings: string[],
  rows: string[][],
  firstOptional: number,
): [headings: string[], rows: string[][]] {
  const isKept = (_: string, i: number) => i < firstOptional || rows.some((row) => row[i] !== "");
  const pick = (line: string[]) => line.filter((cell, i) => isKept(cell, i));
  return [pick(headings), rows.map(pick)];
}

/** `name value` lines; unset values are left out. */
export function renderFields(
  fields: [name: string, value: string | undefined][],
  paintValue: (value: string, name: string) => string = plain,
): string {
  const present = fields.filter((field): field is [string, string] => field[1] !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present
    .map(([name, value]) => `${name.padEnd(width)}  ${paintValue(plainText(value), name)}`)
    .join("\n");
}

function plain(text: string): string {
  return text;
}

/** One line that cannot steer the terminal, for text of any origin. */
export function plainText(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  return stripVTControlCharacters(text).replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}

/** A line that comes from a session: unchanged for a program, harmless for a human's terminal. */
export function showableLine(terminal: { readonly isInteractive: boolean }, text: string): string {
  return terminal.isInteractive ? plainText(text.replaceAll("\t", "        ")) : text;
}
