import { SESSION_ID_PATTERN, type SessionState } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { sessionNotFound } from "../errors/api-error.ts";
import { notUsable } from "./not-usable.ts";
import { findAnySession, type SessionRow } from "./store.ts";

/** The caller's session, or the one answer for foreign, destroyed and never made. */
export async function getSession(db: Queries, scope: Scope, id: string): Promise<SessionRow> {
  const row = await getAnySession(db, scope, id);
  if (row.state === "destroyed") throw sessionNotFound();
  return row;
}

/** One whose settings can be read beside its record: not in the states that close it (wire.md 4.5). */
export async function getReadable(
  db: Queries,
  scope: Scope,
  id: string,
  closedIn: readonly SessionState[] = ["failed"],
): Promise<SessionRow> {
  const row = await getSession(db, scope, id);
  if (closedIn.includes(row.state)) throw notUsable(row);
  return row;
}

/** Also one that has ended. */
export async function getAnySession(db: Queries, scope: Scope, id: string): Promise<SessionRow> {
  const row = SESSION_ID_PATTERN.test(id) ? await findAnySession(db, scope, id) : undefined;
  if (!row) throw sessionNotFound();
  return row;
}
