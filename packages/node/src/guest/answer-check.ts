/** A stream of an agent, checked on its way to the caller. It ends as the agent ended it, or it breaks off. */
import type { ClientHttp2Stream } from "node:http2";
import { Transform, type TransformCallback } from "node:stream";
import { cancel } from "./answers.ts";

/** The part of an error's text that is passed on. */
export const ERROR_BYTES = 1024;
const CHECKS = 10;

export abstract class AnswerCheck extends Transform {
  #heardAt = Date.now();

  /** Passes on what is allowed. Throws if the agent breaks its contract. */
  protected abstract accept(chunk: Buffer): void;

  /** Throws if the answer must not end here. */
  protected abstract acceptEnd(): void;

  get heardAt(): number {
    return this.#heardAt;
  }

  /** True while the reader is slow. That is not the agent's fault, so it is waited for. */
  get isWaitingForReader(): boolean {
    return this.readableLength >= this.readableHighWaterMark;
  }

  /** A reader that leaves cancels the agent's request. */
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

  /** Breaks off once the agent took `limitMs` in total, however steadily it sends; a slow reader's time is free. */
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
