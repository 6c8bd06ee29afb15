/** Queues received chunks for one reader, and pauses the sender while `fullBytes` or more are unread. */
export class ChunkQueue {
  readonly #chunks: Uint8Array[] = [];
  readonly #flow: { fullBytes: number; pause(): void; resume(): void };
  #bytes = 0;
  #end: { error?: unknown } | undefined;
  #arrived = Promise.withResolvers<void>();

  constructor(flow: { fullBytes: number; pause(): void; resume(): void }) {
    this.#flow = flow;
  }

  push(chunk: Uint8Array): void {
    if (this.#end !== undefined || chunk.byteLength === 0) return;
    this.#chunks.push(chunk);
    this.#bytes += chunk.byteLength;
    if (this.#bytes >= this.#flow.fullBytes) this.#flow.pause();
    this.#arrived.resolve();
  }

  /** Ends the queue; only the first call counts. Chunks that were received before can still be read. */
  end(error?: unknown): void {
    this.#end ??= { error };
    this.#arrived.resolve();
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    for (;;) {
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) return this.#take(chunk);
      if (this.#end?.error !== undefined) throw this.#end.error;
      if (this.#end !== undefined) return { done: true, value: undefined };
      this.#arrived = Promise.withResolvers();
      await this.#arrived.promise;
    }
  }

  #take(value: Uint8Array): IteratorResult<Uint8Array, undefined> {
    const wasFull = this.#bytes >= this.#flow.fullBytes;
    this.#bytes -= value.byteLength;
    if (wasFull && this.#bytes < this.#flow.fullBytes) this.#flow.resume();
    return { done: false, value };
  }
}
