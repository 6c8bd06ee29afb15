/**
 * How much the tests of streams, crashes and leaks do. With `VIV_TEST_FULL=1` it is all that is promised, which
 * `scripts/run-long-tests` runs; without it, as much as shows a fault in a run of all tests.
 */
export function size(sizes: { ci: number; full: number }): number {
  return process.env.VIV_TEST_FULL === "1" ? sizes.full : sizes.ci;
}
