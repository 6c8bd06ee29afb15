import { timingSafeEqual } from "node:crypto";
import path from "node:path";
import { writeDurably } from "@vivarium/kit/durable-file";
import type { Database } from "../db/pool.ts";
import { apiKeyDigest, newApiKey, shownPartOf } from "./api-key.ts";
import { keyedDigest } from "./pepper.ts";
import { findPepperCheck, insertInstallation, insertTenant, lockBootstrap } from "./store.ts";

/**
 * Creates an organisation, a project and a key on the first start with a database, and writes the key to a file.
 * Hazard: a crash between file and commit. The file is written first, so the next start finds no tenant and makes a new
 * key. In the other order, a tenant could exist whose only key is unknown.
 */
export async function bootstrap({
  db,
  pepper,
  controlDir,
}: {
  db: Database;
  pepper: Buffer;
  controlDir: string;
}): Promise<{ mintedKey?: string }> {
  const check = keyedDigest(pepper, "installation", "pepper");
  return await db.transaction().execute(async (tx) => {
    await lockBootstrap(tx);
    const known = await findPepperCheck(tx);
    if (known) {
      if (known.length === check.length && timingSafeEqual(known, check)) return {};
      throw new Error(
        `the pepper in ${controlDir} is not the one this database was set up with: no key would be accepted; ` +
          "restore the file from the backup of the data directory, or start with an empty database",
      );
    }
    const key = newApiKey();
    await insertInstallation(tx, check);
    await insertTenant(tx, { digest: apiKeyDigest(pepper, key), prefix: shownPartOf(key) });
    await writeDurably(path.join(controlDir, "bootstrap.key"), `${key}\n`, 0o600);
    return { mintedKey: key };
  });
}
