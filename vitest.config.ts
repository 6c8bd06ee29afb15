import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

const POSTGRES = "test/support/postgres.ts";
const NETWORK = "test/e2e/network-*.test.ts";
const MINUTE_MS = 60_000;
/** Tests without machines wait more than they compute. */
const AT_ONCE = availableParallelism() + 1;
const ON_MACHINES = {
  fileParallelism: false,
  maxWorkers: 1,
  testTimeout: 3 * MINUTE_MS,
  hookTimeout: 3 * MINUTE_MS,
};

export default defineConfig({
  test: {
    // What ends with the run, a service with its machines or a database server, takes its time on a busy host; cut off, it
    // would be left behind.
    teardownTimeout: MINUTE_MS,
    projects: [
      {
        test: {
          name: "unit",
          include: [
            "packages/*/src/**/*.test.ts",
            "test/*.test.ts",
            "test/defences/*.test.ts",
            "test/contract/fake*.test.ts",
            "test/fuzz/**/*.test.ts",
          ],
          globalSetup: existsSync(POSTGRES) ? [POSTGRES] : [],
          maxWorkers: AT_ONCE,
          maxConcurrency: AT_ONCE,
          // What hangs is ended; how fast something is, a test says itself.
          testTimeout: MINUTE_MS,
          hookTimeout: MINUTE_MS,
        },
      },
      {
        // One real service with real machines for all files: they run one after the other.
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          exclude: [NETWORK],
          globalSetup: ["test/support/service.ts"],
          ...ON_MACHINES,
        },
      },
      {
        // One service for all files, a world of servers for each: one world fits into a network at a time. Runs beside each
        // other have a network each (scripts/in-own-network).
        test: {
          name: "network",
          include: [NETWORK],
          globalSetup: ["test/support/world/service.ts"],
          ...ON_MACHINES,
        },
      },
    ],
  },
});
