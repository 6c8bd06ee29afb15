/** Changes the key-encryption key that seals. Afterwards rewrap.ts brings the data keys under it, in the background. */
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { Keyring } from "./keyring.ts";
import { lockRotation } from "./store.ts";

export async function rotateKek({ db, keyring }: { db: Database; keyring: Keyring }): Promise<void> {
  if (keyring.makesKeys ? await rotateAlone(db, keyring) : await keyring.rotate()) return;
  throw new ApiError(
    "conflict",
    `${keyring.current?.id} is still the last key of its source: add a new one after it, and ask again (docs/operate/secrets.md)`,
  );
}

/** Two processes that add a key to one file at once would lose one of them. */
async function rotateAlone(db: Database, keyring: Keyring): Promise<boolean> {
  return await db.transaction().execute(async (tx) => {
    await lockRotation(tx);
    return await keyring.rotate();
  });
}
