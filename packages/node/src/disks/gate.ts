/**
 * Refuses work that would leave too little free disk: anything that will grow on disk reserves first. A reservation is
 * refused if free space, less all reservations, would fall below a floor. Check and reservation are one step.
 */
import { statfs } from "node:fs/promises";
import { GIB } from "@vivarium/kit/sizes";
import { NodeError } from "../node-error.ts";

const FLOOR_SHARE = 0.1;
const FLOOR_MAX_BYTES = 5 * GIB;

export class DiskGate {
  readonly #dirs: string[];
  readonly #floorBytes: number | undefined;
  #reservedBytes = 0;

  /** `dirs`: the pool and, if the pool is an image file, its file system. The one with less space to spare counts. */
  constructor(dirs: string[], floorBytes?: number) {
    this.#dirs = dirs;
    this.#floorBytes = floorBytes;
  }

  /** Reserves space and returns the function that releases it. Throws `disk_pressure`. */
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

  /** Throws `disk_pressure` if this many bytes would be refused now. Reserves nothing. */
  async check(bytes = 0): Promise<void> {
    if (!(await this.hasSpace(bytes)))
      throw new NodeError("disk_pressure", "this node has too little free disk for this; try again later");
  }

  /** Whether this many more bytes may be written; with 0, whether a machine that a full disk stopped may continue. */
  async hasSpace(bytes = 0): Promise<boolean> {
    return (await this.#marginBytes()) >= bytes;
  }

  async #marginBytes(): Promise<number> {
    const margins = await Promise.all(
      this.#dirs.map(async (dir) => {
        const { free_bytes, total_bytes } = await diskSpace(dir);
        return free_bytes - (this.#floorBytes ?? Math.min(total_bytes * FLOOR_SHARE, FLOOR_MAX_BYTES));
      }),
    );
    return Math.min(...margins) - this.#reservedBytes;
  }
}

export async function diskSpace(dir: string): Promise<{ free_bytes: number; total_bytes: number }> {
  const { bavail, blocks, bsize } = await statfs(dir);
  return { free_bytes: bavail * bsize, total_bytes: blocks * bsize };
}
