/** Cursors of lists: the position after which the next page starts. Opaque to callers; a cursor grants no access. */
import { invalidField } from "./validation.ts";

export interface Cursor {
  at: Date;
  id: string;
}

export function encodeCursor({ at, id }: Cursor): string {
  return Buffer.from(`${at.getTime()}.${id}`).toString("base64url");
}

export function decodeCursor(text: string, idPattern: RegExp): Cursor {
  const [time = "", id = "", ...rest] = Buffer.from(text, "base64url").toString("latin1").split(".");
  const isOurs = /^[0-9]{1,14}$/.test(time) && idPattern.test(id) && rest.length === 0;
  const cursor = { at: new Date(Number(time)), id };
  if (!isOurs || encodeCursor(cursor) !== text) {
    throw invalidField("cursor", "must be the next_cursor of an earlier answer, unchanged");
  }
  return cursor;
}

/** Cuts rows to one page. The caller has read `limit + 1` rows, so an extra row shows that another page follows. */
export function pageOf<Row>(
  rows: readonly Row[],
  limit: number,
  cursorOf: (row: Row) => Cursor,
): { page: Row[]; nextCursor?: string } {
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  if (rows.length <= limit || last === undefined) return { page };
  return { page, nextCursor: encodeCursor(cursorOf(last)) };
}
