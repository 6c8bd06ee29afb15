/**
 * The disk gate: whatever will grow on disk reserves first, and is refused while what is free, less what others
 * reserved, would fall below a floor (security.md C13). Check and reservation are one step.
 */
import { statfs } from "node:fs/promises";
import { NodeError } from "../node-error.ts";

const GIB = 1024 ** 3;
const FLOOR_SHARE = 0.1;
const FLOOR_MAX_BYTES = 5 * GIB;

export class DiskGate {
  readonly #dirs: string[];
  readonly #floorBytes: number | undefined;
  #reservedBytes = 0;

  /** `dirs`: the pool and, where the pool is an image file, the file system that holds it; the tighter one counts. */
  constructor(dirs: string[], floorBytes?: number) {
    this.#dirs = dirs;
    this.#floorBytes = floorBytes;
  }

  /** Returns the release. Throws `disk_pressure`. */
  async reserve(bytes: number): Promise<() => void> {
    this.#reservedBytes += bytes;
    let isHeld = true;
    const release = () => {
      if (isHeld) this.#reservedBytes -= bytes;
      isHeld = false;
    };
    try {
      await this.check();
      return release;
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Throws `disk_pressure` when so many bytes would be refused by now; reserves nothing. */
  async check(bytes = 0): Promise<void> {
    if (!(await this.hasRoom(bytes)))
      throw new NodeError("disk_pressure", "this node has too little free disk for this; try again later");
  }

  /** Whether machines that stopped for want of space may go on, or so many bytes more be written. */
  async hasRoom(bytes = 0): Promise<boolean> {
    return (await this.#marginBytes()) >= bytes;
  }

  async #marginBytes(): Promise<number> {
    const margins = await Promise.all(
      this.#dirs.map(async (dir) => {
        const { bavail, blocks, bsize } = await statfs(dir);
        const floor = this.#floorBytes ?? Math.min(blocks * bsize * FLOOR_SHARE, FLOOR_MAX_BYTES);
        return bavail * bsize - floor;
      }),
    );
    return Math.min(...margins) - this.#reservedBytes;
  }
}
