/** The place in the history after which the next page starts. Opaque to callers; it grants nothing. */
import { SESSION_ID_PATTERN } from "@vivarium/contract/api";
import { invalidField } from "../http/validation.ts";

export interface Cursor {
  endedAt: Date;
  id: string;
}

export function encodeCursor({ endedAt, id }: Cursor): string {
  return Buffer.from(`${endedAt.getTime()}.${id}`).toString("base64url");
}

export function decodeCursor(text: string): Cursor {
  const [time = "", id = "", ...rest] = Buffer.from(text, "base64url").toString("latin1").split(".");
  const isOurs = /^[0-9]{1,14}$/.test(time) && SESSION_ID_PATTERN.test(id) && rest.length === 0;
  const cursor = { endedAt: new Date(Number(time)), id };
  if (!isOurs || encodeCursor(cursor) !== text) {
    throw invalidField("cursor", "must be the next_cursor of an earlier answer, unchanged");
  }
  return cursor;
}
