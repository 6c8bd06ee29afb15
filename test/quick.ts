/** The tests on real machines that are part of `npm test`: a file for each thing that the product does. */
export const QUICK = ["test/e2e/cli-run.test.ts", "test/e2e/sessions.test.ts"];
