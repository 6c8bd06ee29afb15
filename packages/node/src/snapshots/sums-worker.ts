/** The program of the thread of `SumsThread`: one answer per message. */
import { parentPort } from "node:worker_threads";
import { changedRuns, type Mapping, packRuns, unpackRuns } from "./changed-pages.ts";
import { crcOfFile } from "./file-crc.ts";
import { type ChangedMemory, writeChangedPages } from "./memory.ts";
import { DamagedMemory, PageSums, verifyMemory } from "./page-sums.ts";

const JOBS = {
  verifyMemory: async (file: string, sums: string, scope: "all" | "own"): Promise<void> =>
    await verifyMemory(file, await PageSums.read(sums), scope),

  crcOfFile,

  findChanged: (pid: number, mappings: Mapping[]): { runs: Float64Array; bytes: number } => {
    const runs = changedRuns(pid, mappings);
    return { runs: packRuns(runs), bytes: runs.reduce((sum, run) => sum + run.bytes, 0) };
  },

  writeChanged: async (
    { runs, ...source }: Omit<ChangedMemory, "runs"> & { runs: Float64Array },
    target: { file: string; sums: Uint8Array },
  ): Promise<{ written: number; sums: Uint8Array }> => {
    const sums = PageSums.parse(target.sums);
    const written = await writeChangedPages(
      { ...source, runs: unpackRuns(runs) },
      { file: target.file, sums },
    );
    return { written, sums: sums.toBytes() };
  },
};

export type Jobs = typeof JOBS;

export type Job = { [Name in keyof Jobs]: { name: Name; input: Parameters<Jobs[Name]> } }[keyof Jobs];

export type Answer = { id: number } & ({ result: unknown } | { failure: Failure });

/** An error as a plain message: a posted Error loses its class and code. */
export interface Failure {
  message: string;
  code?: string;
  isDamage: boolean;
}

parentPort?.on("message", async ({ id, ...job }: Job & { id: number }) => {
  const answer: Answer = await run(job as Job).then(
    (result) => ({ id, result }),
    (error: NodeJS.ErrnoException) => ({ id, failure: failureOf(error) }),
  );
  parentPort?.postMessage(answer);
});

async function run({ name, input }: Job): Promise<unknown> {
  const work = JOBS[name] as (...input: unknown[]) => unknown;
  return await work(...input);
}

const failureOf = (error: NodeJS.ErrnoException): Failure => ({
  message: error.message,
  code: error.code,
  isDamage: error instanceof DamagedMemory,
});
