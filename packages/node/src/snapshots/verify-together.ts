/**
 * Machines that are loaded from the same files at the same time share one verification of them: what sixteen children
 * come from is read once. A verification that has ended is never used again, since files may be damaged after it.
 */
import { stat } from "node:fs/promises";
import path from "node:path";
import { type Loadable, SNAPSHOT_FILES, UnusableSnapshot } from "./manifest.ts";

export class Verifications {
  readonly #verify: (loadable: Loadable) => Promise<void>;
  readonly #underWay = new Map<string, Promise<void>>();

  /** Of what is published only: nobody may join one that began while files were still written. */
  constructor(verify: (loadable: Loadable) => Promise<void>) {
    this.#verify = verify;
  }

  /** Joins the verification of the same files that is under way, or makes one. Damage is found for all who joined. */
  async verify(loadable: Loadable): Promise<void> {
    const key = await identityOf(loadable);
    for (let theirs = this.#underWay.get(key); theirs; theirs = this.#underWay.get(key))
      if (await isConclusive(theirs)) return await theirs;
    const mine = this.#verify(loadable).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, mine);
    await mine;
  }
}

/** What another could not read says nothing: its links go with its machine, and ours are still there. */
async function isConclusive(verification: Promise<void>): Promise<boolean> {
  return await verification.then(
    () => true,
    (error: unknown) => error instanceof UnusableSnapshot,
  );
}

/** Each machine has links of its own to the files, so they are known by what the links lead to. */
async function identityOf({ dir, manifest }: Loadable): Promise<string> {
  const files = await Promise.all(SNAPSHOT_FILES.map((name) => stat(path.join(dir, name), { bigint: true })));
  return JSON.stringify([manifest, files.map(({ dev, ino }) => `${dev}:${ino}`)]);
}
