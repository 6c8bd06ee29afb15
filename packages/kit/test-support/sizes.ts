/**
 * How much the tests of streams, crashes and leaks do. `VIV_TEST_FULL=1` sets the full sizes, which
 * `scripts/run-long-tests` uses; without it, the sizes are just large enough to show a fault in a normal test run.
 */
export function size(sizes: { ci: number; full: number }): number {
  return process.env.VIV_TEST_FULL === "1" ? sizes.full : sizes.ci;
}
