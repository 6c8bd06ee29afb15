/** Checks a terminal's output frame by frame. */
import {
  encodeTerminalFrame,
  TERMINAL_FRAME,
  type TerminalFrame,
  TerminalFrameDecoder,
} from "@vivarium/contract/guest";
import { AnswerCheck, ERROR_TEXT_LIMIT_BYTES } from "./answer-check.ts";

export class TerminalCheck extends AnswerCheck {
  readonly #decoder = new TerminalFrameDecoder();
  #hasEnded = false;

  protected override accept(chunk: Buffer): void {
    for (const frame of this.#decoder.push(chunk)) {
      if (this.#hasEnded) throw new Error("the agent sent a frame after the end");
      const payload = payloadOf(frame);
      this.push(payload === frame.payload ? frame.whole : encodeTerminalFrame(frame.type, payload));
      this.#hasEnded = frame.type !== TERMINAL_FRAME.data;
    }
  }

  protected override acceptEnd(): void {
    if (!this.#hasEnded) throw new Error("the agent ended the terminal without an exit");
  }
}

function payloadOf({ type, payload }: TerminalFrame): Buffer {
  switch (type) {
    case TERMINAL_FRAME.data:
      return payload;
    case TERMINAL_FRAME.exit:
      if (payload.length === 4 && payload.readUInt32BE() <= 255) return payload;
      throw new Error("the agent sent an exit that is none");
    case TERMINAL_FRAME.error:
      return payload.subarray(0, ERROR_TEXT_LIMIT_BYTES);
    default:
      throw new Error(`the agent sent a frame of type ${type} from a terminal`);
  }
}
