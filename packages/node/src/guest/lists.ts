/** A list of an agent, passed on frame by frame. Each item is checked against the contract and none is stored. */
import { encodeFrame, FRAME, type FrameAsSent, ListReader, type ListShape } from "@vivarium/contract/guest";
import { errorFrame, FrameCheck } from "./frame-check.ts";

export class ListCheck extends FrameCheck {
  readonly #reader: ListReader<unknown, unknown>;

  constructor(shape: ListShape<unknown, unknown>) {
    super("eof");
    this.#reader = new ListReader(shape);
  }

  protected override acceptFrame(frame: FrameAsSent): boolean {
    if (frame.type === FRAME.error) {
      this.push(errorFrame(frame.payload));
      return true;
    }
    for (const _ of this.#reader.read(frame));
    const { end } = this.#reader;
    this.push(end === undefined ? frame.whole : encodeFrame(FRAME.eof, JSON.stringify(end)));
    return end !== undefined;
  }
}
