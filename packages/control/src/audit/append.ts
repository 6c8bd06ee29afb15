/** Writes an entry in the transaction of its change, so that it exists exactly when the change does. */
import type { Queries } from "../db/pool.ts";
import { type NewEntry, newRow } from "./entry.ts";
import { insertEntries } from "./store.ts";

/** Dependencies of writing entries. */
export interface AuditDeps {
  /** The key of seals (entry.ts). */
  auditKey: Buffer;
}

export async function appendEntry({ auditKey }: AuditDeps, tx: Queries, entry: NewEntry): Promise<void> {
  await insertEntries(tx, [newRow(auditKey, entry)]);
}
