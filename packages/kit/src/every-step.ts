/** Runs every step although some fail. */

export interface Step {
  name: string;
  run: () => Promise<unknown> | unknown;
}

/** Runs the steps one after the other, each also after failures. The failures are thrown together, by name. */
export async function everyStep(steps: readonly Step[]): Promise<void> {
  const failures: Error[] = [];
  for (const { name, run } of steps) {
    try {
      await run();
    } catch (cause) {
      failures.push(new Error(`${name} failed: ${messageOf(cause)}`, { cause }));
    }
  }
  if (failures.length > 0) throw new AggregateError(failures, failures.map((f) => f.message).join("; "));
}

const messageOf = (cause: unknown) => (cause instanceof Error ? cause.message : String(cause));
