/**
 * For one file of tests, `VIV_TEST_FILE`, that is run with a defence away: the one at the place `VIV_TEST_WITHOUT` of the
 * list, if that is set.
 */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { DEFENCES } from "./catalogue.ts";
import { without } from "./without.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { VIV_TEST_FILE: file = "", VIV_TEST_WITHOUT: place } = process.env;
const away = place === undefined ? undefined : DEFENCES[Number(place)];
if (place !== undefined && away === undefined) throw new Error(`the list of defences has no place ${place}`);

export default defineConfig({
  root,
  plugins: [without(root, away?.edits ?? [])],
  test: {
    include: [file],
    globalSetup: file.startsWith("packages/control/") ? ["test/support/postgres.ts"] : [],
    // What is kept for other runs must never be code without a defence.
    fsModuleCache: false,
    // What notices often waits for what never comes; each of these tests is done in less.
    testTimeout: away ? 7_000 : 20_000,
    hookTimeout: 60_000,
  },
});
