/**
 * Brings all data keys under the current key-encryption key, and seals variables that were kept before there was one. Each
 * row is written by itself, so the work may stop anywhere, and the next run takes what is left.
 */
import type { Database } from "../db/pool.ts";
import { newDataKey, rewrapped, sealValues } from "./data-key.ts";
import type { Kek } from "./kek-text.ts";
import type { Keyring } from "./keyring.ts";
import {
  countDataKeys,
  deleteUnsealedOfEnded,
  insertSealedValues,
  KEY_TABLES,
  type KeyTable,
  listUnsealed,
  listWrappedBy,
  replaceWrapping,
  sealCheckpoint,
  sealSession,
  VARIABLE_TABLES,
  type VariableTable,
} from "./store.ts";

const AT_ONCE = 500;

export interface RewrapDeps {
  db: Database;
  keyring: Keyring;
}

export async function rewrapAll({ db, keyring }: RewrapDeps): Promise<void> {
  await deleteUnsealedOfEnded(db);
  await keyring.refresh();
  const ids = [...(await countDataKeys(db)).keys()];
  // A key that another process has taken over already is found now. Otherwise its rows would be taken back to an older one.
  for (const id of ids) await keyring.require(id).catch(() => undefined);
  const kek = keyring.current;
  if (!kek) return;
  const failures: unknown[] = [];
  for (const table of KEY_TABLES) {
    for (const other of ids.filter((id) => id !== kek.id))
      await rewrapTable({ db, keyring }, kek, table, other).catch((error: unknown) => failures.push(error));
  }
  for (const table of VARIABLE_TABLES) while (await sealSome(db, kek, table));
  if (failures.length > 0) throw failures[0];
}

/** A row whose key is not loaded, or which does not open, stays as it is and stops no other. */
async function rewrapTable(
  { db, keyring }: RewrapDeps,
  kek: Kek,
  table: KeyTable,
  other: string,
): Promise<void> {
  let failure: unknown;
  let after = "";
  for (;;) {
    const rows = await listWrappedBy(db, table, other, { after, limit: AT_ONCE });
    for (const row of rows) {
      const wrapped = await rewrapped(keyring, kek, row).catch((error: unknown) => {
        failure = error;
      });
      if (wrapped) await replaceWrapping(db, table, row, wrapped);
    }
    if (rows.length < AT_ONCE) break;
    after = rows.at(-1)?.id ?? after;
  }
  if (failure) throw failure;
}

/** Seals some rows whose variables are not sealed yet. False once there are none. */
async function sealSome(db: Database, kek: Kek, table: VariableTable): Promise<boolean> {
  return await db.transaction().execute(async (tx) => {
    const rows = await listUnsealed(tx, table, AT_ONCE);
    for (const { env, ...owner } of rows) {
      const { key, wrapped } = newDataKey(kek, owner);
      const sealed = sealValues(key, owner, "env", env);
      if (table === "checkpoints") await sealCheckpoint(tx, owner.id, { ...wrapped, sealed_env: sealed });
      else {
        await sealSession(tx, owner.id, wrapped);
        await insertSealedValues(tx, [{ session_id: owner.id, kind: "env", names: [], sealed }]);
      }
    }
    return rows.length > 0;
  });
}
