import { refusedData } from "../db/postgres-errors.ts";

/**
 * Writes rows in their order. If the database refuses their data, writes each half by itself, so that one bad row does
 * not block the others. Any other failure ends the writing.
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
