import { expect, test } from "vitest";
import { readConfig, withOptions } from "../config.ts";
import { dataDirFor } from "./install.ts";

test("an install over a unit is for its data directory, unless another one is named", () => {
  const unit = { dataDir: "/srv/vivarium" };
  const chosen = (env: Record<string, string>, options: { dataDir?: string }, of?: { dataDir: string }) =>
    dataDirFor(withOptions(readConfig(env), options), options, of);
  expect(chosen({}, {}, unit)).toBe("/srv/vivarium");
  expect(chosen({}, {}, undefined)).toBe("/var/lib/vivarium");
  expect(chosen({}, { dataDir: "/named" }, unit)).toBe("/named");
  expect(chosen({ VIV_DATA_DIR: "/of-shell" }, {}, unit)).toBe("/of-shell");
});
