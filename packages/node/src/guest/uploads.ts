/** A body of any size on its way into the guest. It arrives whole or not at all: a source that breaks off resets it. */
import { createHash } from "node:crypto";
import type { ClientHttp2Stream } from "node:http2";
import type { Readable } from "node:stream";
import type { z } from "zod";
import { NodeError } from "../node-error.ts";
import { cancel, readAnswer, statusOf } from "./answers.ts";
import type { AgentClient, OpenRequest } from "./client.ts";

/** How long an upload may go without a byte moving. It also bounds how long the agent may take to make it durable. */
const STANDSTILL_MS = 120_000;

export interface Upload<T> extends OpenRequest {
  source: Readable;
  /** Names the bytes that the agent has kept. */
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
 * However a stream of HTTP/2 is closed, Node ends its body first, and a body that ends is whole for whoever reads it. This
 * one ends with its source, and otherwise it is reset alone.
 */
function endOnlyWith(source: Readable, stream: ClientHttp2Stream): void {
  const endBody = stream._final.bind(stream);
  stream._final = (done) => (source.readableEnded ? endBody(done) : done());
}

/** Bytes that move from the source to the agent's stream, and the failure when they stop doing so. */
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

  /** The source keeps what it has not given yet. */
  stop(): void {
    clearInterval(this.#watch);
    this.#source.off("data", this.#count).off("close", this.#onSourceClose);
    this.#source.unpipe(this.#stream);
  }

  /** SHA-256 of what the source gave, hex. Once. */
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
