/** The program of `SumsThread`'s thread, which answers each message with one message. */
import { parentPort } from "node:worker_threads";
import { makeSealedDisk } from "../disks/sealed-disk.ts";
import { changedRuns, type Mapping, packRuns, unpackRuns } from "./changed-pages.ts";
import { crcOfFile } from "./file-crc.ts";
import { type ChangedMemory, writeChangedPages } from "./memory.ts";
import { PageSums, UnusableSnapshot, verifyMemory } from "./page-sums.ts";
import type { Sealing } from "./sealed-file.ts";
import { loadSealedPages, writeSealedPages } from "./sealed-memory.ts";

export type PackedMemory = Omit<ChangedMemory, "runs"> & { runs: Float64Array };

const JOBS = {
  verifyMemory: async (file: string, sums: string, scope: "all" | "own"): Promise<void> =>
    await verifyMemory(file, await PageSums.read(sums), scope),

  crcOfFile,

  findChanged: (pid: number, mappings: Mapping[]): { runs: Float64Array; bytes: number } => {
    const runs = changedRuns(pid, mappings);
    return { runs: packRuns(runs), bytes: runs.reduce((sum, run) => sum + run.bytes, 0) };
  },

  writeChanged: async (
    { runs, ...source }: PackedMemory,
    target: { file: string; sums: Uint8Array },
  ): Promise<{ written: number; sums: Uint8Array }> => {
    const sums = PageSums.parse(target.sums);
    const written = await writeChangedPages(
      { ...source, runs: unpackRuns(runs) },
      { file: target.file, sums },
    );
    return { written, sums: sums.toBytes() };
  },

  writeSealed: async (
    { runs, ...source }: PackedMemory,
    target: Sealing & { file: string },
  ): Promise<{ written: number; fileBytes: number }> =>
    await writeSealedPages({ ...source, runs: unpackRuns(runs) }, target),

  loadSealed: async (source: Sealing & { file: string }, pid: number, mappings: Mapping[]): Promise<void> =>
    await loadSealedPages(source, { pid, mappings }),

  makeSealedDisk,
};

export type Jobs = typeof JOBS;

export interface Job {
  id: number;
  name: keyof Jobs;
  input: unknown[];
}

/** An error as a plain message: a posted Error loses its class and code. */
export interface Failure {
  message: string;
  code: string | undefined;
  isDamage: boolean;
}

type Outcome = { result: unknown } | { failure: Failure };

export type Answer = { id: number } & Outcome;

parentPort?.on("message", async ({ id, name, input }: Job) => {
  const answer: Answer = { id, ...(await outcomeOf(name, input)) };
  parentPort?.postMessage(answer);
});

async function outcomeOf(name: keyof Jobs, input: unknown[]): Promise<Outcome> {
  const work = JOBS[name] as (...input: unknown[]) => unknown;
  try {
    return { result: await work(...input) };
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException;
    return { failure: { message, code, isDamage: error instanceof UnusableSnapshot } };
  }
}
