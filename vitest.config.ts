import { existsSync } from "node:fs";
import { availableParallelism } from "node:os";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { defineConfig } from "vitest/config";
import { EXHAUSTIVE, LONG, QUICK } from "./test/quick.ts";

// For the processes of this run, and those that they start: what one has compiled, the next one does not compile again.
process.env.NODE_COMPILE_CACHE ??= new URL("node_modules/.cache/compiled", import.meta.url).pathname;

const POSTGRES = "test/support/postgres.ts";
const E2E = "test/e2e/**/*.test.ts";
const NETWORK = "test/e2e/network-*.test.ts";
const part = process.env.VIV_TEST_PART;
const MINUTE_MS = 60_000;
/** How long what hangs is waited for, per minute. */
const PATIENCE_MS = MINUTE_MS * SLOWNESS;
/** Tests without machines wait more than they compute. */
const AT_ONCE = availableParallelism() + 3;
const UNIT = [
  "packages/*/src/**/*.test.ts",
  "test/*.test.ts",
  "test/defences/*.test.ts",
  "test/hosts/*.test.ts",
  "test/contract/fake*.test.ts",
  "test/fuzz/**/*.test.ts",
];
const isNetwork = (file: string) => file.startsWith("test/e2e/network-");

/** The files of a project on machines that are part of the run: all, those of `npm test`, those that it leaves out, or the long ones. */
function partOf(all: string, isOurs: (file: string) => boolean): { include: string[]; exclude: string[] } {
  const [quick, long] = [QUICK, LONG].map((files) => files.filter(isOurs)) as [string[], string[]];
  if (part === "quick") return { include: quick, exclude: [] };
  if (part === "long") return { include: long, exclude: [] };
  return { include: [all], exclude: part === "rest" ? [...quick, ...long] : [] };
}

const e2e = partOf(E2E, (file) => !isNetwork(file));
/** One file at a time: `scripts/run-tests` runs both projects beside each other. */
const ON_MACHINES = {
  fileParallelism: false,
  maxWorkers: 1,
  testTimeout: 5 * PATIENCE_MS,
  hookTimeout: 5 * PATIENCE_MS,
  expect: { poll: { timeout: PATIENCE_MS } },
};

export default defineConfig({
  test: {
    // What ends with the run, a service with its machines or a database server, takes its time on a busy host; cut off, it
    // would be left behind.
    teardownTimeout: PATIENCE_MS,
    projects: [
      {
        test: {
          name: "unit",
          include: part === "rest" ? EXHAUSTIVE : UNIT,
          exclude: part === "quick" ? EXHAUSTIVE : [],
          globalSetup: existsSync(POSTGRES) ? [POSTGRES] : [],
          maxWorkers: AT_ONCE,
          // A file's start costs as much as its tests do, and nearly all of that is modules that others have loaded.
          isolate: false,
          maxConcurrency: AT_ONCE,
          sequence: { groupOrder: 1 },
          // What hangs is ended; how fast something is, a test says itself.
          testTimeout: 2 * PATIENCE_MS,
          hookTimeout: 2 * PATIENCE_MS,
          expect: { poll: { timeout: PATIENCE_MS / 2 } },
        },
      },
      {
        // Real services with real machines.
        test: {
          name: "e2e",
          include: e2e.include,
          exclude: [NETWORK, ...e2e.exclude],
          globalSetup: ["test/support/service.ts"],
          sequence: { groupOrder: 2 },
          ...ON_MACHINES,
        },
      },
      {
        // One service for all files, a world of servers for each: one world fits into a network at a time. Runs beside each
        // other have a network each (scripts/in-own-network).
        test: {
          name: "network",
          ...partOf(NETWORK, isNetwork),
          globalSetup: ["test/support/world/service.ts"],
          sequence: { groupOrder: 3 },
          ...ON_MACHINES,
        },
      },
    ],
  },
});
