/**
 * Uploads a body of any size into the guest. It arrives whole or not at all: if the source breaks off, the agent's
 * stream is reset.
 */
import { createHash } from "node:crypto";
import type { ClientHttp2Stream } from "node:http2";
import type { Readable } from "node:stream";
import type { z } from "zod";
import { NodeError } from "../node-error.ts";
import { cancel, readAnswer, statusOf } from "./answers.ts";
import type { AgentClient, OpenRequest } from "./client.ts";

/** How long an upload may stall, also while the agent makes it durable after the last byte. */
const STANDSTILL_MS = 120_000;

export interface Upload<T> extends OpenRequest {
  source: Readable;
  /** Schema of the agent's answer, with the number of bytes that it stored. */
  answer: z.ZodType<T>;
}

export async function uploadToGuest<T extends { bytes: number }>(
  agent: AgentClient,
  { source, answer, ...request }: Upload<T>,
  standstillMs = STANDSTILL_MS,
): Promise<T & { sha256: string }> {
  const stream = await agent.open(request);
  const transfer = new Transfer(source, stream, standstillMs);
  try {
    const status = await Promise.race([statusOf(stream, false), transfer.failed]);
    const written = await Promise.race([readAnswer({ status, stream }, answer), transfer.failed]);
    if (!source.readableEnded || written.bytes !== transfer.bytes)
      throw new NodeError("agent_unavailable", "the agent kept something else than what it was sent");
    return { ...written, sha256: transfer.digest() };
  } catch (error) {
    cancel(stream);
    throw error;
  } finally {
    transfer.stop();
  }
}

/**
 * Node ends an HTTP/2 request's body before it closes the stream, however it is closed, and to the reader an ended
 * body is whole. So this stream ends only with its source, and is reset otherwise.
 */
function endOnlyWith(source: Readable, stream: ClientHttp2Stream): void {
  const endBody = stream._final.bind(stream);
  stream._final = (done) => (source.readableEnded ? endBody(done) : done());
}

/** Tracks the bytes from the source to the agent's stream, and fails once they stall. */
class Transfer {
  readonly failed: Promise<never>;
  readonly #source: Readable;
  readonly #stream: ClientHttp2Stream;
  readonly #fail: (error: NodeError) => void;
  readonly #watch: NodeJS.Timeout;
  readonly #hash = createHash("sha256");
  #movedAt = Date.now();
  bytes = 0;

  constructor(source: Readable, stream: ClientHttp2Stream, standstillMs: number) {
    this.#source = source;
    this.#stream = stream;
    const { promise, reject } = Promise.withResolvers<never>();
    this.failed = promise;
    this.failed.catch(() => {});
    this.#fail = reject;
    this.#watch = setInterval(() => {
      if (Date.now() - this.#movedAt >= standstillMs) reject(this.#standstill(standstillMs));
    }, standstillMs / 10);
    this.#watch.unref();
    source.on("data", this.#count).once("close", this.#onSourceClose);
    stream.on("drain", this.#moved);
    if (source.destroyed && !source.readableEnded) this.#onSourceClose();
    endOnlyWith(source, stream);
    source.pipe(stream);
  }

  /** Stops the transfer; bytes that were not sent yet stay in the source. */
  stop(): void {
    clearInterval(this.#watch);
    this.#source.off("data", this.#count).off("close", this.#onSourceClose);
    this.#source.unpipe(this.#stream);
  }

  /** SHA-256 of the source's bytes, in hex. Call once. */
  digest(): string {
    return this.#hash.digest("hex");
  }

  readonly #moved = () => {
    this.#movedAt = Date.now();
  };

  readonly #count = (chunk: Buffer) => {
    this.bytes += chunk.length;
    this.#hash.update(chunk);
    this.#moved();
  };

  readonly #onSourceClose = () => {
    if (this.#source.readableEnded) return;
    cancel(this.#stream);
    this.#fail(new NodeError("invalid", "the body broke off before its end"));
  };

  #standstill(limitMs: number): NodeError {
    const waitsForAgent = this.#source.readableEnded || this.#stream.writableNeedDrain;
    return waitsForAgent
      ? new NodeError("agent_unavailable", `the agent took nothing of the body for ${limitMs} ms`)
      : new NodeError("invalid", `the body stood still for ${limitMs} ms`);
  }
}
