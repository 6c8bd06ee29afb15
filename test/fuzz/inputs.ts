/**
 * How many inputs each target is given: a tenth in every run, all of them with `VIV_TEST_FULL=1`, ten times as many
 * with `VIV_FUZZ=10`. Input number i is made from seed `VIV_FUZZ_SEED` + i, which a failure names.
 */
import { AssertionError } from "node:assert/strict";
import { setImmediate } from "node:timers/promises";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { type Random, randomFrom } from "../chaos/random.ts";

const TIMES = Number(process.env.VIV_FUZZ ?? size({ ci: 0.1, full: 1 }));
const FIRST_SEED = Number(process.env.VIV_FUZZ_SEED ?? 1);

/** In the full size. */
export const INPUTS = {
  execFrames: 18_000,
  logFrames: 12_000,
  terminalFrames: 12_000,
  fileContents: 6_000,
  openings: 6_000,
  jsonAnswers: 26_000,
  refusals: 20_000,
  resyncs: 600,
  connections: 3_000,
  httpAnswers: 3_000,
} as const;

/** Number of inputs of this run, from the number of the full size. */
export function inThisRun(inputs: number): number {
  return Math.ceil(inputs * TIMES);
}

/** Every input is a test of its own; the first that fails ends the run with its seed. */
export async function forEachInput(
  target: keyof typeof INPUTS,
  check: (random: Random) => void | Promise<void>,
): Promise<void> {
  for (let i = 0; i < inThisRun(INPUTS[target]); i++) {
    const seed = FIRST_SEED + i;
    // A pause as between the bytes of a real agent: garbage that is freed only then does not pile up.
    if (i % 100 === 0) await setImmediate();
    try {
      await check(randomFrom(seed));
    } catch (cause) {
      const message = `${target}, VIV_FUZZ_SEED=${seed}: ${(cause as Error).message}`;
      // Distinguishes failed assertions about an input from errors while it was handled.
      throw cause instanceof AssertionError ? new AssertionError({ message }) : new Error(message, { cause });
    }
  }
}

export const TIME_LIMIT_MS = 120_000 * SLOWNESS * Math.max(1, TIMES);
