/** The log of a named process, passed on frame by frame and checked. */
import { encodeFrame, FRAME, type FrameAsSent, LogEnd } from "@vivarium/contract/guest";
import { errorFrame, FrameCheck } from "./frame-check.ts";

export class LogCheck extends FrameCheck {
  readonly #left: Map<number, number>;

  /** `limitBytes`: per stream. */
  constructor(limitBytes: number) {
    super("eof");
    this.#left = new Map([
      [FRAME.stdout, limitBytes],
      [FRAME.stderr, limitBytes],
    ]);
  }

  protected override acceptFrame(frame: FrameAsSent): boolean {
    const { type, payload } = frame;
    if (type === FRAME.eof) this.push(encodeFrame(type, JSON.stringify(endOf(payload))));
    else if (type === FRAME.error) this.push(errorFrame(payload));
    else this.#acceptOutput(frame);
    return type === FRAME.eof || type === FRAME.error;
  }

  #acceptOutput({ type, payload, whole }: FrameAsSent): void {
    const left = this.#left.get(type);
    if (left === undefined) throw new Error(`the agent sent a frame of type ${type} in a log`);
    if (payload.length > left) throw new Error("the agent sent more of a log than it was asked for");
    this.#left.set(type, left - payload.length);
    this.push(whole);
  }
}

const endOf = (payload: Buffer) => LogEnd.parse(JSON.parse(payload.toString("utf8")));
