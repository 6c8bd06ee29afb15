/** A limit on requests in flight per key. Requests beyond it wait in line for a while. */
const MAX_IN_FLIGHT = 256;
const WAIT_MS = 10_000;

interface Line {
  taken: number;
  waiting: Set<() => void>;
}

export class RequestLimit {
  readonly #lines = new Map<string, Line>();
  readonly #waitMs: number;

  constructor(waitMs = WAIT_MS) {
    this.#waitMs = waitMs;
  }

  /** Takes a slot. Resolves to the function that gives it back, or to undefined when none became free in time. */
  async take(key: string): Promise<(() => void) | undefined> {
    const line = this.#lines.get(key) ?? { taken: 0, waiting: new Set() };
    this.#lines.set(key, line);
    if (line.taken >= MAX_IN_FLIGHT) {
      if (!(await isNext(line, this.#waitMs))) return undefined;
    } else line.taken++;
    return () => this.#giveBack(key, line);
  }

  /** A slot goes to the next in line without becoming free in between. */
  #giveBack(key: string, line: Line): void {
    const [next] = line.waiting;
    if (next) next();
    else line.taken--;
    if (line.taken === 0) this.#lines.delete(key);
  }
}

function isNext(line: Line, waitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const leave = (isTaken: boolean) => {
      clearTimeout(timer);
      line.waiting.delete(next);
      resolve(isTaken);
    };
    const next = () => leave(true);
    const timer = setTimeout(() => leave(false), waitMs);
    line.waiting.add(next);
  });
}
