/** A place for chunks that another process has: it is asked over one stream, and answers over another. */
import type { Writable } from "node:stream";
import type { ChunkStore } from "./chunk-store.ts";
import {
  BrokenRelay,
  type Frame,
  type FrameType,
  NAME_BYTES,
  readFrames,
  TYPES,
  writeFrame,
} from "./frames.ts";
import { UNUSABLE_REASONS, UnusableArchive } from "./unusable-archive.ts";

interface Pending {
  parts: Buffer[];
  resolve: (parts: Buffer[]) => void;
  reject: (error: unknown) => void;
}

export class RelayedChunks implements ChunkStore {
  readonly #asks: Writable;
  readonly #pending = new Map<number, Pending>();
  #last = 0;
  #broken: Error | undefined;

  /** Ends with the answers: everything that is still asked then fails. */
  constructor(asks: Writable, answers: AsyncIterable<Uint8Array>) {
    this.#asks = asks;
    // The failure of a write is that of its ask.
    asks.on("error", () => undefined);
    void this.#read(answers);
  }

  async *names(): AsyncGenerator<string> {
    for (const part of await this.#ask(TYPES.names, []))
      for (let at = 0; at < part.length; at += NAME_BYTES)
        yield part.subarray(at, at + NAME_BYTES).toString("hex");
  }

  async put(name: string, bytes: Uint8Array, signal?: AbortSignal): Promise<void> {
    await this.#ask(TYPES.put, [Buffer.from(name, "hex"), bytes], signal);
  }

  async get(name: string, mostBytes: number, signal?: AbortSignal): Promise<Buffer> {
    const most = Buffer.alloc(4);
    most.writeUInt32BE(mostBytes);
    const bytes = Buffer.concat(await this.#ask(TYPES.get, [Buffer.from(name, "hex"), most], signal));
    if (bytes.length <= mostBytes) return bytes;
    throw new UnusableArchive("too_long", `the object ${name} has more than ${mostBytes} bytes`);
  }

  /** Says how the work went, as JSON. Nothing is asked after it. */
  async finish(result: unknown): Promise<void> {
    await writeFrame(this.#asks, TYPES.result, 0, Buffer.from(JSON.stringify(result)));
  }

  async #ask(type: FrameType, payload: Uint8Array[], signal?: AbortSignal): Promise<Buffer[]> {
    signal?.throwIfAborted();
    if (this.#broken) throw this.#broken;
    const ask = ++this.#last;
    const { promise, resolve, reject } = Promise.withResolvers<Buffer[]>();
    this.#pending.set(ask, { parts: [], resolve, reject });
    // An answer that comes later is dropped.
    const abort = () => reject(signal?.reason);
    signal?.addEventListener("abort", abort);
    try {
      const [answer] = await Promise.all([promise, writeFrame(this.#asks, type, ask, ...payload)]);
      return answer;
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#pending.delete(ask);
    }
  }

  async #read(answers: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const frame of readFrames(answers)) this.#take(frame);
      this.#break(new BrokenRelay("the other side has ended"));
    } catch (error) {
      this.#break(
        error instanceof BrokenRelay ? error : new BrokenRelay("the other side has left", { cause: error }),
      );
    }
  }

  #take({ type, ask, payload }: Frame): void {
    const pending = this.#pending.get(ask);
    if (type === TYPES.failed) pending?.reject(failureIn(payload));
    else if (type === TYPES.part || type === TYPES.end) pending?.parts.push(payload);
    else throw new BrokenRelay(`a frame has the type ${type}`);
    if (type === TYPES.end) pending?.resolve(pending.parts);
  }

  #break(error: Error): void {
    this.#broken = error;
    for (const { reject } of this.#pending.values()) reject(error);
  }
}

function failureIn(payload: Buffer): Error {
  const { reason, message } = JSON.parse(payload.toString()) as { reason?: string; message?: string };
  const known = UNUSABLE_REASONS.find((one) => one === reason);
  const text = String(message);
  return known ? new UnusableArchive(known, text) : new Error(text);
}
