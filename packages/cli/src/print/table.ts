import { stripVTControlCharacters } from "node:util";

/** Left-aligned columns, two spaces apart, with a heading. Cells are one line and cannot steer the terminal. */
export function renderTable(headings: string[], rows: string[][]): string {
  const lines = [headings, ...rows.map((row) => row.map(plainCell))];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? "").length)));
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** `name  value` lines; what is unset is left out. */
export function renderFields(fields: [name: string, value: string | undefined][]): string {
  const present = fields.filter((field): field is [string, string] => field[1] !== undefined);
  const width = Math.max(...present.map(([name]) => name.length));
  return present.map(([name, value]) => `${name.padEnd(width)}  ${plainCell(value)}`).join("\n");
}

function plainCell(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this removes
  return stripVTControlCharacters(text).replaceAll(/[\u0000-\u001f\u007f-\u009f]/g, " ");
}
