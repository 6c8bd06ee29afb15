/** Processor time of a stream, by part: the guest, its emulator, and each process that passes the bytes on. */
import { readdirSync, readFileSync } from "node:fs";
import { percentile } from "./samples.ts";

/** The process of a machine, and those that pass on its streams, by name. */
export interface Parts {
  machine: number;
  others: Record<string, number>;
}

/** Milliseconds of processor time for each MiB, of each part, round by round. */
export class StreamCosts {
  readonly #parts: Parts;
  readonly #mib: number;
  readonly #spent = new Map<string, number[]>();

  constructor(parts: Parts, mib: number) {
    this.#parts = parts;
    this.#mib = mib;
  }

  async measured<T>(round: () => Promise<T>): Promise<T> {
    const before = this.#now();
    const result = await round();
    for (const [part, ms] of Object.entries(this.#now())) {
      const spent = (ms - (before[part] ?? 0)) / this.#mib;
      this.#spent.set(part, [...(this.#spent.get(part) ?? []), spent]);
    }
    return result;
  }

  /** For 64 MiB, the median: `guest 300, emulator 80 ms`. */
  toString(): string {
    const parts = [...this.#spent].map(
      ([part, perMib]) => `${part} ${Math.round(percentile(perMib, 50) * 64)}`,
    );
    return `${parts.join(", ")} ms`;
  }

  #now(): Record<string, number> {
    const { machine, others } = this.#parts;
    const threads = cpuMsByThread(machine);
    const all = [...threads.values()].reduce((sum, ms) => sum + ms, 0);
    // QEMU moves the port's bytes on its first thread; the others are the guest's processors and a few that write its disk.
    const emulator = threads.get(machine) ?? 0;
    const ms: Record<string, number> = { guest: all - emulator, emulator };
    for (const [name, pid] of Object.entries(others))
      ms[name] = [...cpuMsByThread(pid).values()].reduce((sum, one) => sum + one, 0);
    return ms;
  }
}

/** As the scheduler counts it, in nanoseconds: a tick of `stat` is as long as some rounds. */
function cpuMsByThread(pid: number): Map<number, number> {
  const threads = new Map<number, number>();
  for (const tid of readdirSync(`/proc/${pid}/task`).map(Number))
    try {
      const [ns] = readFileSync(`/proc/${pid}/task/${tid}/schedstat`, "utf8").split(" ");
      threads.set(tid, Number(ns) / 1e6);
    } catch {
      // The thread has ended meanwhile.
    }
  return threads;
}
