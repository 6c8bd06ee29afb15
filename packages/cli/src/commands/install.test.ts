import { mkdir, symlink } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readConfig, withOptions } from "../config.ts";
import { dataDirFor } from "./install.ts";

inOwnDirectories();

test("an install over a unit is for its data directory, unless another one is named", () => {
  const unit = { dataDir: "/srv/vivarium" };
  const chosen = (env: Record<string, string>, options: { dataDir?: string }, of?: { dataDir: string }) =>
    dataDirFor(withOptions(readConfig(env), options), options, of);
  expect(chosen({}, {}, unit)).toBe("/srv/vivarium");
  expect(chosen({}, {}, undefined)).toBe("/var/lib/vivarium");
  expect(chosen({}, { dataDir: "/named" }, unit)).toBe("/named");
  expect(chosen({ VIV_DATA_DIR: "/of-shell" }, {}, unit)).toBe("/of-shell");
});

test("a link to the unit's data directory names the same one, by the path of the unit", async () => {
  const [dataDir, link] = [path.join(dir, "data"), path.join(dir, "link")];
  await mkdir(dataDir);
  await symlink(dataDir, link);
  const config = withOptions(readConfig({}), { dataDir: link });
  expect(dataDirFor(config, { dataDir: link }, { dataDir })).toBe(dataDir);
});
