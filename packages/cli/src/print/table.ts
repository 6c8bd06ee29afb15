/** Renders tables and fields as plain text that cannot control the terminal. */
import { stripVTControlCharacters } from "node:util";

/** Colours a cell that is already padded to the width of its column. Row 0 is the heading. */
export type PaintCell = (padded: string, at: { row: number; heading: string }) => string;

/** Renders left-aligned columns with a heading. Cells lose control characters and line ends. */
export function renderTable(headings: string[], rows: string[][], paintCell: PaintCell = plain): string {
  const lines = [headings, ...rows.map((row) => row.map(plainText))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? "").length)));
  return lines
    .map((line, row) => {
      // Trailing blanks are cut before colours are added: a coloured blank could not be cut.
      const lastFilled = line.findLastIndex((cell) => cell.trim() !== "");
      return line
        .slice(0, lastFilled + 1)
        .map((cell, column) => (column === lastFilled ? cell.trimEnd() : cell.padEnd(widths[column] ?? 0)))
        .map((cell, column) => paintCell(cell, { row, heading: headings[column] ?? "" }))
        .join("  ");
    })
    .join("\n");
}

/** Drops columns without values, from the column `firstOptional` on. */
export function withoutEmptyColumns(
  headings: string[],
  rows: string[][],
  firstOptional: number,
): [headings: string[], rows: string[][]] {
  const isKept = (_: string, i: number) => i < firstOptional || rows.some((row) => row[i] !== "");
  const pick = (line: string[]) => line.filter((cell, i) => isKept(cell, i));
  return [pick(headings), rows.map(pick)];
}

/** Renders `name value` lines; unset values are left out. */
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

/** Makes text of any origin one line without control characters. */
export function plainText(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  return stripVTControlCharacters(text).replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}

/** A line from a session: unchanged in a pipe, without control characters on a terminal. */
export function showableLine(terminal: { readonly isInteractive: boolean }, text: string): string {
  return terminal.isInteractive ? plainText(text.replaceAll("\t", "        ")) : text;
}
