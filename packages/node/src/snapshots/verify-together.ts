/**
 * Lets machines that are loaded from the same files at the same time share one verification: the parent of sixteen
 * forked children is read once. A finished verification is never reused, because files may be damaged after it.
 */
import { stat } from "node:fs/promises";
import path from "node:path";
import { filesOf, type Loadable } from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";

export class Verifications {
  readonly #verify: (loadable: Loadable) => Promise<void>;
  readonly #underWay = new Map<string, Promise<void>>();

  /** `verify` is only called with published files, because files that are still written would fail it. */
  constructor(verify: (loadable: Loadable) => Promise<void>) {
    this.#verify = verify;
  }

  /** Joins the verification of the same files in progress, or starts one. Damage is reported to all who joined. */
  async verify(loadable: Loadable): Promise<void> {
    const key = await identityOf(loadable);
    for (let theirs = this.#underWay.get(key); theirs; theirs = this.#underWay.get(key))
      if (await isConclusive(theirs)) return await theirs;
    const mine = this.#verify(loadable).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, mine);
    await mine;
  }
}

/** False if the verification could not read a file: its machine's links may be gone, while this one's still exist. */
async function isConclusive(verification: Promise<void>): Promise<boolean> {
  return await verification.then(
    () => true,
    (error: unknown) => error instanceof UnusableSnapshot,
  );
}

/** Identifies files by device and inode, because each machine has links of its own. */
async function identityOf({ dir, manifest }: Loadable): Promise<string> {
  const files = await Promise.all(
    filesOf(manifest).map((name) => stat(path.join(dir, name), { bigint: true })),
  );
  return JSON.stringify([manifest, files.map(({ dev, ino }) => `${dev}:${ino}`)]);
}
