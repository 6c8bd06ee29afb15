/** Reads a caller's session, or throws the error that the caller gets. */
import { SESSION_ID_PATTERN, type SessionState } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { SessionNotFound } from "../errors/api-error.ts";
import { notUsable } from "./not-usable.ts";
import { findAnySession, type SessionRow } from "./store.ts";

/** The caller's session. A foreign, destroyed or unknown id is the same 404. */
export async function getSession(db: Queries, scope: Scope, id: string): Promise<SessionRow> {
  const row = await getAnySession(db, scope, id);
  if (row.state === "destroyed") throw new SessionNotFound();
  return row;
}

/** The caller's session. Throws in the states `closedIn`, in which sub-resources cannot be read. */
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

/** The caller's session, even if it has ended. */
export async function getAnySession(db: Queries, scope: Scope, id: string): Promise<SessionRow> {
  const row = SESSION_ID_PATTERN.test(id) ? await findAnySession(db, scope, id) : undefined;
  if (!row) throw new SessionNotFound();
  return row;
}
