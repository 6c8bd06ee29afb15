/** Checks a stream of an agent on its way to the caller, who gets it whole or broken off, never cut short. */
import type { ClientHttp2Stream } from "node:http2";
import { Transform, type TransformCallback } from "node:stream";
import { cancel } from "./answers.ts";

/** Bytes of an agent's error text that are passed on. */
export const ERROR_TEXT_LIMIT_BYTES = 1024;
/** Checks for overdue answers in one interval. */
const CHECKS = 10;

export abstract class AnswerCheck extends Transform {
  #heardAt = Date.now();

  /** Passes on the allowed bytes. Throws if the agent breaks its contract. */
  protected abstract accept(chunk: Buffer): void;

  /** Throws if the answer must not end here. */
  protected abstract acceptEnd(): void;

  get heardAt(): number {
    return this.#heardAt;
  }

  /** Whether the reader is behind; the agent's time limits do not run meanwhile. */
  get isWaitingForReader(): boolean {
    return this.readableLength >= this.readableHighWaterMark;
  }

  /** Reads from the agent's stream. A reader that leaves cancels the agent's request. */
  follow(source: ClientHttp2Stream): this {
    const breakOff = () => this.destroy(new Error("the agent broke the stream"));
    this.once("close", () => cancel(source));
    source.once("aborted", breakOff);
    source.once("close", () => {
      if (!source.readableEnded) breakOff();
    });
    if (source.destroyed && !source.readableEnded) breakOff();
    source.pipe(this);
    return this;
  }

  /** Breaks off once the agent took `limitMs` in total, however steadily it sends, without the time of a slow reader. */
  breakOffAfter(limitMs: number, reason: string): void {
    let left = CHECKS;
    this.breakOffWhen(() => --left <= 0, limitMs, reason);
  }

  /** Breaks off once `isOverdue` returns true. It is called about ten times in `intervalMs`. */
  breakOffWhen(isOverdue: () => boolean, intervalMs: number, reason: string): void {
    const check = setInterval(() => {
      if (!this.isWaitingForReader && isOverdue()) this.destroy(new Error(reason));
    }, intervalMs / CHECKS);
    check.unref();
    this.once("close", () => clearInterval(check));
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#heardAt = Date.now();
    attempt(() => this.accept(chunk), done);
  }

  override _flush(done: TransformCallback): void {
    attempt(() => this.acceptEnd(), done);
  }
}

function attempt(step: () => void, done: TransformCallback): void {
  try {
    step();
    done();
  } catch (error) {
    done(error as Error);
  }
}
