/**
 * Releases of resources acquired so far, run in reverse order when a later step fails. Every release runs even if an
 * earlier one throws; the failures are thrown together.
 */
import { everyStep } from "./every-step.ts";

export class UndoStack {
  #steps: { name: string; undo: () => Promise<unknown> | unknown }[] = [];

  push(name: string, undo: () => Promise<unknown> | unknown): void {
    this.#steps.push({ name, undo });
  }

  /** The acquisitions succeeded: forget how to undo them. */
  release(): void {
    this.#steps = [];
  }

  async unwind(): Promise<void> {
    const steps = this.#steps.splice(0).reverse();
    await everyStep(steps.map(({ name, undo }) => ({ name: `undo of "${name}"`, run: undo })));
  }
}
