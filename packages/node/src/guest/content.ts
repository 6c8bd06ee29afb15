/** A file's content on its way out: exactly as long as the agent promised, or broken off. */
import { AnswerCheck } from "./answer-check.ts";

export class ContentCheck extends AnswerCheck {
  #left: number;

  constructor(promisedBytes: number) {
    super();
    this.#left = promisedBytes;
  }

  protected override accept(chunk: Buffer): void {
    this.#left -= chunk.length;
    if (this.#left < 0) throw new Error("the agent sent more of a file than it promised");
    this.push(chunk);
  }

  protected override acceptEnd(): void {
    if (this.#left > 0) throw new Error("the agent sent less of a file than it promised");
  }
}
