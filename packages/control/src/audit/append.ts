/** Writes entries in the transaction of their change, so that they exist exactly when the change does. */
import type { Queries } from "../db/pool.ts";
import { type NewEntry, newRow } from "./entry.ts";
import { insertEntries } from "./store.ts";

/** Dependencies of writing entries. */
export interface AuditDeps {
  /** The key of seals (entry.ts). */
  auditKey: Buffer;
}

export async function appendEntry(deps: AuditDeps, tx: Queries, entry: NewEntry): Promise<void> {
  await appendEntries(deps, tx, [entry]);
}

export async function appendEntries(
  { auditKey }: AuditDeps,
  tx: Queries,
  entries: readonly NewEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  await insertEntries(
    tx,
    entries.map((entry) => newRow(auditKey, entry)),
  );
}
