/**
 * Releases of resources acquired so far, run in reverse order when a later step fails. Every release runs even if an
 * earlier one throws; the failures are thrown together.
 */
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
    const failures: Error[] = [];
    for (const { name, undo } of this.#steps.splice(0).reverse()) {
      try {
        await undo();
      } catch (cause) {
        failures.push(new Error(`undo of "${name}" failed`, { cause }));
      }
    }
    if (failures.length > 0) throw new AggregateError(failures, failures.map((f) => f.message).join("; "));
  }
}
