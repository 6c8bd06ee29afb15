/** Helpers for tests of code contexts. */
import type { CodeContext } from "../src/code/code-context.ts";
import type { Session } from "../src/session.ts";

export const valueIn = async (session: Session, code: string) =>
  (await session.runCode(code)).results[0]?.data;

export const lastValue = async (context: CodeContext, code: string) =>
  (await context.run(code)).results[0]?.data;

/** Code that defines `await_file(name)`, which waits until the test makes that file in the guest's directory. */
export const AWAIT_FILE =
  "import os, time\ndef await_file(name):\n  while not os.path.exists(name): time.sleep(.01)\n";

/** `isRunning` resolves when the code prints, which the test's code does once it runs. */
export function announced(): { onStdout: () => void; isRunning: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { onStdout: resolve, isRunning: promise };
}
