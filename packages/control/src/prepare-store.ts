/** Prepares the database and the directory of a control plane before it serves. */
import type { Log } from "@vivarium/kit/log";
import { bootstrap } from "./access/bootstrap.ts";
import { loadOperatorKey } from "./access/operator-key.ts";
import { loadPepper } from "./access/pepper.ts";
import { countOwnCeilings } from "./access/store.ts";
import { keptHeadsFile } from "./audit/kept-heads.ts";
import { migrate } from "./db/migrate.ts";
import { requireOwnOrEmptyDatabase } from "./db/own-tables.ts";
import type { Database } from "./db/pool.ts";
import { untilStored } from "./db/retry.ts";
import { saveRows } from "./db/save-rows.ts";
import { loadPreviewKey } from "./previews/secrets.ts";
import { requireKeksOfRows } from "./secrets/check-keks.ts";
import type { KekSource } from "./secrets/kek-source.ts";
import { Keyring } from "./secrets/keyring.ts";
import { countDataKeys } from "./secrets/store.ts";

/**
 * Brings the schema of the database up to date, and reads the keys that lie beside it. Waits for a database that does not
 * answer yet. `mintedKey` is the API key that was made at the first start on a database.
 */
export async function prepareStore(
  {
    db,
    url,
    controlDir,
    kekSource,
  }: { db: Database; url: string; controlDir: string; kekSource: KekSource | undefined },
  log: Log,
) {
  const pepper = await loadPepper(controlDir);
  const beforeChange = async (schema: number) => {
    const file = await saveRows(url, controlDir, schema);
    log.info({ schema, file }, "saved the rows before the schema changes");
  };
  // The database may still be starting.
  await untilStored(() => requireOwnOrEmptyDatabase(url));
  const applied = await untilStored(() => migrate(db, { beforeChange }));
  if (applied.length > 0) log.info({ migrations: applied }, "schema brought up to date");
  const { mintedKey } = await bootstrap({ db, pepper, controlDir });
  const owning = await countOwnCeilings(db);
  if (owning > 0)
    log.info(
      { organisations: owning },
      "organisations with a ceiling of sessions of their own: VIV_CONCURRENT_SESSIONS is not for them",
    );
  const keyring = await untilStored(() => loadKeyring(db, kekSource, log));
  const [previewKey, operatorDigest] = [await loadPreviewKey(controlDir), await loadOperatorKey(controlDir)];
  const heads = keptHeadsFile(controlDir);
  return { pepper, previewKey, operatorDigest, keyring, keptHeadsFile: heads, mintedKey };
}

/** Loads the key-encryption keys, and makes the first one unless the database has values that an older one sealed. */
async function loadKeyring(db: Database, source: KekSource | undefined, log: Log): Promise<Keyring> {
  const isUnused = (await countDataKeys(db)).size === 0;
  const { keyring, made } = await Keyring.load(source, isUnused);
  await requireKeksOfRows(db, keyring);
  if (made !== undefined)
    log.warn(
      { file: made },
      "made a key-encryption key: keep a copy of it, without it no secret can be read",
    );
  return keyring;
}
