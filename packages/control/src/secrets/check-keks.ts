/** Refuses a start whose key-encryption keys do not open what the database has sealed. */
import type { Database } from "../db/pool.ts";
import { openDataKey } from "./data-key.ts";
import type { Keyring } from "./keyring.ts";
import { listSamples } from "./store.ts";

export async function requireKeksOfRows(db: Database, keyring: Keyring): Promise<void> {
  for (const sample of await listSamples(db)) {
    const { kek_id: id } = sample;
    if (!keyring.ids.includes(id))
      throw new Error(
        `the database has values that are sealed with ${id}, and this key-encryption key is not there: ` +
          "put it back from a backup of the data directory, into the file or setting that it was in (docs/operate/secrets.md)",
      );
    await openDataKey(keyring, sample).catch(() => {
      throw new Error(
        `the key-encryption key ${id} is not the one of this name that the database's values are sealed with: ` +
          "put the right one back from a backup of the data directory (docs/operate/secrets.md)",
      );
    });
  }
}
