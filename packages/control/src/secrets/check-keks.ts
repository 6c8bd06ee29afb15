/** Refuses a start whose key-encryption keys do not open what the database has sealed. */
import type { Database } from "../db/pool.ts";
import { openDataKey } from "./data-key.ts";
import type { Keyring } from "./keyring.ts";
import { countDataKeys, KEY_TABLES, listWrappedBy } from "./store.ts";

/** Data keys that are tried for each key-encryption key. One that was damaged must not stop the service. */
const SAMPLES = 20;

export async function requireKeksOfRows(db: Database, keyring: Keyring): Promise<void> {
  for (const id of (await countDataKeys(db)).keys()) {
    // Another process may have added it since the source was read.
    if (!(await keyring.require(id).catch(() => undefined)))
      throw new Error(
        `the database has values that are sealed with ${id}, and this key-encryption key is not there: ` +
          "put it back from a backup of the data directory, into the file or setting that it was in (docs/operate/secrets.md)",
      );
    if (!(await opensAny(db, keyring, id)))
      throw new Error(
        `the key-encryption key ${id} is not the one of this name that the database's values are sealed with: ` +
          "put the right one back from a backup of the data directory (docs/operate/secrets.md)",
      );
  }
}

/** Also true if nothing is sealed with the key any more. */
async function opensAny(db: Database, keyring: Keyring, id: string): Promise<boolean> {
  let tried = 0;
  for (const table of KEY_TABLES) {
    for (const sample of await listWrappedBy(db, table, id, { after: "", limit: SAMPLES })) {
      tried++;
      if (await openDataKey(keyring, sample).catch(() => undefined)) return true;
    }
  }
  return tried === 0;
}
