/** How much of the host's processors nobody used lately. */
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";

/** Ticks are hundredths of a second: shorter than this, a few of them would say anything. */
const SHORTEST_MS = 100;
const TICK_MS = 10;

/** Idle ones are those between one look and the next. */
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

/** Of all processors together, since the host started. */
function readIdleMs(): number {
  const [, , , , idle, waitingForDisks] = readFileSync("/proc/stat", "utf8").split(/\s+/, 6);
  return (Number(idle) + Number(waitingForDisks)) * TICK_MS;
}
