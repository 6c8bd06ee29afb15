/**
 * Streams of HTTP/2 whose last answer was written. Hazard: a guest that opens no window never takes it, and may open streams
 * without end. So of a session they are a bounded number, for a while only, and nothing of their bodies is kept.
 */
import type { ServerHttp2Stream } from "node:http2";

/** All that four connections can have at a time. A guest that reads takes a short answer at once. */
const MOST = 256;

export class Lingering {
  readonly #streams = new Set<ServerHttp2Stream>();

  /** Resets the stream when it takes longer, or when too many came after it. */
  add(stream: ServerHttp2Stream, withinMs: number): void {
    if (stream.destroyed) return;
    stream.resume();
    const late = setTimeout(() => reset(stream), withinMs);
    this.#streams.add(stream);
    stream.once("close", () => {
      clearTimeout(late);
      this.#streams.delete(stream);
    });
    const [oldest] = this.#streams;
    if (oldest && this.#streams.size > MOST) {
      this.#streams.delete(oldest);
      reset(oldest);
    }
  }
}

function reset(stream: ServerHttp2Stream): void {
  stream.destroy(new Error("the guest does not take the answer to a refused request"));
}
