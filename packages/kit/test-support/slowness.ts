/** Factor for the time limits of tests: a host that is itself emulated keeps none of them otherwise. */
export const SLOWNESS = Number(process.env.VIV_TEST_SLOWNESS ?? 1);
