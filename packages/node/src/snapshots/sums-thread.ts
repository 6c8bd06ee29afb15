/**
 * Runs checksums of memory and disks on another thread: 256 MiB of memory take a tenth of a second of processor time,
 * in which the daemon would answer no other request. Files are passed by path, never as bytes.
 *
 * If the thread dies, its pending jobs fail, and the next job starts another thread.
 */
import { Worker } from "node:worker_threads";
import type { Log } from "@vivarium/kit/log";
import type { Mapping } from "./changed-pages.ts";
import { PageSums, UnusableSnapshot } from "./page-sums.ts";
import type { Sealing } from "./sealed-file.ts";
import type { Answer, Failure, Job, Jobs, PackedMemory } from "./sums-worker.ts";

type Waiting = Map<number, PromiseWithResolvers<unknown>>;

const startWorker = () => new Worker(new URL("./sums-worker.ts", import.meta.url), { name: "sums" });

export class SumsThread {
  readonly #log: Log;
  readonly #start: () => Worker;
  #thread: { worker: Worker; waiting: Waiting } | undefined;
  #asked = 0;
  #isClosed = false;

  /** Starts the thread now, because the first job may be a capture, whose guest is stopped meanwhile. */
  constructor({ log, start = startWorker }: { log: Log; start?: () => Worker }) {
    this.#log = log;
    this.#start = start;
    this.#thread = this.#begin();
  }

  /** Throws UnusableSnapshot if a page of `file` does not match the table in the file `sums`. */
  async verifyMemory(file: string, sums: string, scope: "all" | "own"): Promise<void> {
    await this.#ask("verifyMemory", [file, sums, scope]);
  }

  async crcOfFile(file: string): Promise<number> {
    return await this.#ask("crcOfFile", [file]);
  }

  /** The pages that a stopped process has changed, for `writeChanged`, and their size in bytes. */
  async findChanged(pid: number, mappings: Mapping[]): Promise<{ runs: Float64Array; bytes: number }> {
    return await this.#ask("findChanged", [pid, mappings]);
  }

  /** Runs `writeChangedPages`. Returns the bytes written, and the new sums in a new table. */
  async writeChanged(
    source: PackedMemory,
    target: { file: string; sums: PageSums },
  ): Promise<{ written: number; sums: PageSums }> {
    const input = { file: target.file, sums: target.sums.toBytes() };
    const { written, sums } = await this.#ask("writeChanged", [source, input]);
    return { written, sums: PageSums.parse(sums) };
  }

  /** Runs `writeSealedPages`. */
  async writeSealed(
    source: PackedMemory,
    target: Sealing & { file: string },
  ): Promise<{ written: number; fileBytes: number }> {
    return await this.#ask("writeSealed", [source, target]);
  }

  /** Runs `loadSealedPages`. */
  async loadSealed(source: Sealing & { file: string }, pid: number, mappings: Mapping[]): Promise<void> {
    await this.#ask("loadSealed", [source, pid, mappings]);
  }

  /** Runs `makeSealedDisk`. */
  async makeSealedDisk(file: string, disk: { bytes: number; passphrase: string }): Promise<void> {
    await this.#ask("makeSealedDisk", [file, disk]);
  }

  /** Ends the thread. Pending jobs fail. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread?.worker.terminate();
  }

  async #ask<Name extends keyof Jobs>(
    name: Name,
    input: Parameters<Jobs[Name]>,
  ): Promise<Awaited<ReturnType<Jobs[Name]>>> {
    if (this.#isClosed) throw new Error("the thread that sums memory is closed");
    this.#thread ??= this.#begin();
    const { worker, waiting } = this.#thread;
    const id = this.#asked++;
    const answer = Promise.withResolvers<unknown>();
    worker.postMessage({ id, name, input } satisfies Job);
    waiting.set(id, answer);
    worker.ref();
    return (await answer.promise) as Awaited<ReturnType<Jobs[Name]>>;
  }

  #begin() {
    const worker = this.#start();
    const thread = { worker, waiting: new Map() as Waiting };
    worker.on("message", (answer: Answer) => {
      const asked = thread.waiting.get(answer.id);
      thread.waiting.delete(answer.id);
      // The thread does not keep an otherwise finished process alive.
      if (thread.waiting.size === 0) worker.unref();
      if ("failure" in answer) asked?.reject(errorOf(answer.failure));
      else asked?.resolve(answer.result);
    });
    let failure: unknown;
    worker.on("error", (error) => {
      failure = error;
    });
    worker.once("exit", (code) => {
      const cause = failure ?? new Error(`it ended with status ${code}`);
      if (this.#thread === thread) this.#thread = undefined;
      if (!this.#isClosed) this.#log.error({ err: cause }, "the thread that sums memory died");
      const error = new Error("the thread that sums memory died; another one begins with the next request", {
        cause,
      });
      for (const asked of thread.waiting.values()) asked.reject(error);
      thread.waiting.clear();
    });
    worker.unref();
    return thread;
  }
}

function errorOf({ message, code, isDamage }: Failure): Error {
  return isDamage ? new UnusableSnapshot(message) : Object.assign(new Error(message), { code });
}
