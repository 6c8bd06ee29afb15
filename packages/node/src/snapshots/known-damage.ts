/**
 * Remembers saved states that were found damaged, so that they are not offered again, until the daemon ends or the
 * files change: a state that was repaired, or whose files are back, is tried again.
 */
import { statSync } from "node:fs";
import path from "node:path";
import { manifestPath, SEALED_FILES, SNAPSHOT_FILES } from "./manifest.ts";

export class KnownDamage {
  /** Identity of a damaged state's files when the damage was found, by folder. */
  readonly #looks = new Map<string, string>();

  /** Remembers the folder's state as damaged. False if it was known already. */
  note(dir: string): boolean {
    const look = lookOfFiles(dir);
    const isNew = this.#looks.get(dir) !== look;
    this.#looks.set(dir, look);
    return isNew;
  }

  has(dir: string): boolean {
    const known = this.#looks.get(dir);
    if (known === undefined) return false;
    if (known === lookOfFiles(dir)) return true;
    this.#looks.delete(dir);
    return false;
  }

  forget(dir: string): void {
    this.#looks.delete(dir);
  }

  /** Names of the damaged states' folders. */
  get names(): string[] {
    return [...this.#looks.keys()].filter((dir) => this.has(dir)).map((dir) => path.basename(dir));
  }
}

/** Identity and size of the files, without the inode's change time, which moves whenever a machine links the file. */
function lookOfFiles(dir: string): string {
  const files = [
    ...[...SNAPSHOT_FILES, ...SEALED_FILES].map((name) => path.join(dir, name)),
    manifestPath(dir),
  ];
  const looks = files.map((file) => {
    const found = statSync(file, { bigint: true, throwIfNoEntry: false });
    return found && [found.ino, found.size, found.mtimeNs, found.blocks].map(String);
  });
  return JSON.stringify(looks);
}
