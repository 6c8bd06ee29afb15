/** Server-sent events, and a signal for a client that has gone. */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { LIMITS } from "@vivarium/contract/api";
import type { FastifyReply } from "fastify";

/** A signal that fires when the client is gone before its answer is complete. */
export function clientGone(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once("close", () => {
    if (!reply.raw.writableFinished) controller.abort();
  });
  return controller.signal;
}

/**
 * Server-sent events. `send` resolves when the client can take more: back-pressure slows the source down instead of
 * filling memory.
 */
export class EventStream {
  readonly #raw: ServerResponse;
  readonly #heartbeatMs: number;
  #heartbeat: NodeJS.Timeout | undefined;

  constructor(reply: FastifyReply, heartbeatMs: number = LIMITS.sseHeartbeatMs) {
    this.#raw = reply.raw;
    this.#heartbeatMs = heartbeatMs;
    reply.hijack();
    this.#raw.writeHead(200, {
      ...(reply.getHeaders() as Record<string, string>),
      "content-type": "text/event-stream",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
    });
    this.#raw.flushHeaders();
    this.#raw.on("error", () => this.#raw.destroy());
    this.#restartHeartbeat();
  }

  get isClosed(): boolean {
    return this.#raw.destroyed;
  }

  get #isOver(): boolean {
    return this.#raw.destroyed || this.#raw.writableEnded;
  }

  /** With an id, a client that reconnects can resume after this event. */
  async send(event: string, data: string, id?: string): Promise<void> {
    if (this.#isOver) throw new Error("the client is gone");
    this.#restartHeartbeat();
    const idLine = id === undefined ? "" : `id: ${id}\n`;
    if (this.#raw.write(`${idLine}event: ${event}\ndata: ${data}\n\n`)) return;
    const closed = new AbortController();
    const abort = () => closed.abort();
    this.#raw.once("close", abort);
    await once(this.#raw, "drain", { signal: closed.signal }).finally(() => this.#raw.off("close", abort));
  }

  /** Sends bytes as base64, in events of at most `sseChunkBytes` each. */
  async sendBytes(event: string, bytes: Buffer): Promise<void> {
    for (let start = 0; start < bytes.length; start += LIMITS.sseChunkBytes) {
      await this.send(event, bytes.toString("base64", start, start + LIMITS.sseChunkBytes));
    }
  }

  /** Sends an id without data: the client sees no event, but resumes from this id when it reconnects. */
  resumeFrom(id: string): void {
    this.#raw.write(`id: ${id}\n\n`);
  }

  end(): void {
    clearInterval(this.#heartbeat);
    this.#raw.end();
  }

  /** Ends the stream, without waiting for a client that does not read. */
  close(): void {
    if (this.#raw.writableNeedDrain) this.breakOff();
    else this.end();
  }

  breakOff(): void {
    clearInterval(this.#heartbeat);
    this.#raw.destroy();
  }

  #restartHeartbeat(): void {
    clearInterval(this.#heartbeat);
    this.#heartbeat = setInterval(() => {
      if (this.#isOver) return clearInterval(this.#heartbeat);
      // A client that does not read needs no heartbeat.
      if (!this.#raw.writableNeedDrain) this.#raw.write(": hb\n\n");
    }, this.#heartbeatMs);
  }
}
