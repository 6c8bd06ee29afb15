/**
 * Reading saved state whole and summing it, on threads: what is as large as a guest's memory and disk would keep everybody
 * else who asks the daemon for something waiting.
 */
import { availableParallelism } from "node:os";
import { Piscina } from "piscina";
import type { MemoryCheck, Outcome } from "./check-files.ts";

/** At least memory and disk of one snapshot beside each other; of many cores, most are the machines'. */
const THREADS = Math.max(2, Math.min(8, availableParallelism() >> 2));
const IDLE_MS = 60_000;

const threads = new Piscina({
  filename: new URL("./check-files.ts", import.meta.url).href,
  minThreads: 0,
  maxThreads: THREADS,
  idleTimeout: IDLE_MS,
});

/** What is wrong with the pages, of all or of the snapshot's own alone. Rejects where it cannot be said. */
export async function damageOfMemory(check: MemoryCheck): Promise<string | undefined> {
  return await run("memoryDamage", check);
}

export async function crcOfFile(file: string): Promise<number> {
  return await run("fileCrc", { file });
}

async function run<T>(name: string, task: object): Promise<T> {
  const outcome: Outcome<T> = await threads.run(task, { name });
  if ("value" in outcome) return outcome.value;
  const { code, message } = outcome.failure;
  throw Object.assign(new Error(message), { code });
}
