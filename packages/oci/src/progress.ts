/** How far a pull is, in layers and bytes. */

export interface Progress {
  stage: "resolving" | "fetching" | "fetched";
  /** Layers with different content. Those that exist already count as done. */
  layers: { done: number; total: number };
  bytes: { done: number; total: number };
}

/** Bytes between two reports: chunks are much smaller. */
const STEP_BYTES = 1024 * 1024;

export class ProgressCount {
  readonly #onProgress: (progress: Progress) => void;
  #stage: Progress["stage"] = "resolving";
  #totals = { layers: 0, bytes: 0 };
  readonly #bytes = new Map<string, number>();
  readonly #complete = new Set<string>();
  #reported = 0;

  constructor(onProgress: (progress: Progress) => void = () => {}) {
    this.#onProgress = onProgress;
    this.#report();
  }

  begin(layers: readonly { digest: string; size: number }[]): void {
    const sizes = new Map(layers.map(({ digest, size }) => [digest, size]));
    this.#totals = { layers: sizes.size, bytes: [...sizes.values()].reduce((sum, size) => sum + size, 0) };
    this.#stage = "fetching";
    this.#report();
  }

  /** Bytes of a layer that are there; fewer than before if it had to be started over. */
  set(digest: string, bytes: number): void {
    this.#bytes.set(digest, bytes);
    if (Math.abs(this.#done - this.#reported) >= STEP_BYTES) this.#report();
  }

  complete(digest: string): void {
    this.#complete.add(digest);
    this.#report();
  }

  finish(): void {
    this.#stage = "fetched";
    this.#report();
  }

  get #done(): number {
    return [...this.#bytes.values()].reduce((sum, bytes) => sum + bytes, 0);
  }

  #report(): void {
    const bytes = this.#done;
    this.#reported = bytes;
    this.#onProgress({
      stage: this.#stage,
      layers: { done: this.#complete.size, total: this.#totals.layers },
      bytes: { done: bytes, total: this.#totals.bytes },
    });
  }
}
