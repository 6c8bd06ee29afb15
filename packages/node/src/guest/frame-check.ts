/** Checks an agent's frames: known types, bounded sizes, one last frame and nothing after it. */
import { encodeFrame, FRAME, type FrameAsSent, FrameDecoder } from "@vivarium/contract/guest";
import { AnswerCheck, ERROR_TEXT_LIMIT_BYTES } from "./answer-check.ts";

/** How long an answer may stay open after its last frame. */
const END_WITHIN_MS = 10_000;

export abstract class FrameCheck extends AnswerCheck {
  readonly #decoder = new FrameDecoder();
  /** Name of the last frame, for error messages. */
  readonly #endName: string;
  #hasEnded = false;

  constructor(endName: string, endWithinMs = END_WITHIN_MS) {
    super();
    this.#endName = endName;
    const isOverdue = () => this.#hasEnded && Date.now() - this.heardAt > endWithinMs;
    this.breakOffWhen(isOverdue, endWithinMs, "the agent did not end the stream after its last frame");
  }

  /** Passes on the allowed part of a frame that is no error. Returns whether it is the last one. */
  protected abstract acceptFrame(frame: FrameAsSent): boolean;

  protected override accept(chunk: Buffer): void {
    for (const frame of this.#decoder.push(chunk)) {
      if (this.#hasEnded) throw new Error("the agent sent a frame after the end");
      this.#hasEnded = frame.type === FRAME.error ? this.#acceptError(frame) : this.acceptFrame(frame);
    }
  }

  protected override acceptEnd(): void {
    if (!this.#hasEnded) throw new Error(`the agent ended the stream without an ${this.#endName}`);
    if (!this.#decoder.isBetweenFrames) throw new Error("the agent sent half a frame after the end");
  }

  /** Passes on an error frame, which is a last frame too. Its text goes to the tenant and decides nothing here. */
  #acceptError({ payload }: FrameAsSent): boolean {
    this.push(encodeFrame(FRAME.error, payload.subarray(0, ERROR_TEXT_LIMIT_BYTES)));
    return true;
  }
}
