import { refusedData } from "../db/postgres-errors.ts";

/**
 * Writes rows in their order. Where the database refuses what they hold, it is asked again about each half: one bad row
 * keeps no other from being written, however often they are tried. Any other failure ends the writing.
 */
export async function writeAllButRefused<Row>(
  rows: readonly Row[],
  write: (rows: readonly Row[]) => Promise<void>,
  refused: (row: Row, sqlState: string) => void,
): Promise<void> {
  try {
    await write(rows);
  } catch (error) {
    const sqlState = refusedData(error);
    const [row] = rows;
    if (sqlState === undefined || row === undefined) throw error;
    if (rows.length === 1) return refused(row, sqlState);
    const middle = Math.ceil(rows.length / 2);
    await writeAllButRefused(rows.slice(0, middle), write, refused);
    await writeAllButRefused(rows.slice(middle), write, refused);
  }
}
