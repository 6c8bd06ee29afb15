/**
 * The record of what runs: `run/parts.json` names each process of the service with its version and start. A process
 * that is started again after an update of the checkout is newer than the others.
 */
import { readFile, rm } from "node:fs/promises";
import { writeDurably } from "@vivarium/kit/durable-file";
import { SerialQueue } from "@vivarium/kit/serial-queue";

export interface Part {
  pid: number;
  version: string;
  /** RFC 3339. */
  since: string;
}

export type Parts = Record<string, Part>;

export class PartsRecord {
  readonly #file: string;
  readonly #parts: Parts = {};
  readonly #queue = new SerialQueue();

  constructor(file: string) {
    this.#file = file;
  }

  async note(name: string, part: Part): Promise<void> {
    await this.#queue.run(async () => {
      this.#parts[name] = part;
      await writeDurably(this.#file, JSON.stringify(this.#parts), 0o644);
    });
  }

  async remove(): Promise<void> {
    await this.#queue.run(() => rm(this.#file, { force: true }));
  }
}

/** Empty without a record, as of a service of an earlier version. */
export async function readParts(file: string): Promise<Parts> {
  try {
    return JSON.parse(await readFile(file, "utf8")) as Parts;
  } catch {
    return {};
  }
}
