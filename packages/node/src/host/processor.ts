/** Measures how many of the host's processors were idle lately, and finds their clock frequency. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

/** Shortest measured interval: the kernel counts in ticks of 10 ms, so a shorter one would yield mostly rounding. */
const SHORTEST_MS = 100;
const TICK_MS = 10;
const FALLBACK_KHZ = 2_000_000;

/** Counts the processors that were idle between one measurement and the next. */
export class Processor {
  readonly cores = availableParallelism();
  #idle = 0;
  #at = 0;
  #idleMs = 0;

  look(now = performance.now(), idleMs = readIdleMs()): { cores: number; idle: number } {
    const sinceMs = now - this.#at;
    if (sinceMs >= SHORTEST_MS) {
      const isFirst = this.#at === 0;
      this.#idle = isFirst ? 0 : Math.max(0, Math.min(this.cores, (idleMs - this.#idleMs) / sinceMs));
      this.#at = now;
      this.#idleMs = idleMs;
    }
    return { cores: this.cores, idle: this.#idle };
  }
}

/** Idle milliseconds of all processors together since boot. */
function readIdleMs(): number {
  const [, , , , idle, waitingForDisks] = readFileSync("/proc/stat", "utf8").split(/\s+/, 6);
  return (Number(idle) + Number(waitingForDisks)) * TICK_MS;
}

/** The processors' clock frequency, which a guest's kernel cannot measure under emulation. */
export function tscKhz(): number {
  const match = /^cpu MHz\s*:\s*([\d.]+)/m.exec(readFileSync("/proc/cpuinfo", "utf8"));
  return match ? Math.round(Number(match[1]) * 1000) : FALLBACK_KHZ;
}
