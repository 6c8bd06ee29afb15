import { mkdir, symlink } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test, vi } from "vitest";
import { dir } from "../../test-support/program.ts";
import { readConfig } from "../config.ts";
import type { Installed } from "../install/installed.ts";
import { databasePlace } from "./database.ts";

const host: { units: Installed[] } = vi.hoisted(() => ({ units: [] }));
vi.mock("../install/installed.ts", async (original) => ({
  ...(await original<object>()),
  listInstalled: async () => host.units,
}));

const [OWN, CALLERS] = ["postgres://own/of-the-unit", "postgres://own/of-the-caller"];
const OBJECTS = "/srv/objects";

beforeEach(async () => {
  const dataDir = path.join(dir, "data");
  await mkdir(dataDir);
  await symlink(dataDir, path.join(dir, "link"));
  const settings = { DATABASE_URL: OWN, VIV_CONTROL_USER: "somebody", VIV_OBJECTS_DIR: OBJECTS };
  host.units = [{ name: "test", unitFile: "/nowhere/u", settingsFile: "/nowhere/s", dataDir, settings }];
});

const placeIn = (name: string, env: Record<string, string> = {}) =>
  databasePlace(readConfig({ VIV_DATA_DIR: path.join(dir, name), ...env }));

test.each(["data", "link", "link/.", "nowhere/../data"])(
  "the database of a data directory named as %s is that of the unit which serves it",
  async (name) => {
    expect(await placeIn(name)).toEqual({ url: OWN, controlUser: "somebody", objectsDir: OBJECTS });
  },
);

test("another directory has none of the unit's settings, and the caller's address counts first", async () => {
  expect(await placeIn("other")).toEqual({
    url: undefined,
    controlUser: "vivarium",
    objectsDir: path.join(dir, "other/objects"),
  });
  expect(await placeIn("link", { DATABASE_URL: CALLERS })).toMatchObject({ url: CALLERS });
});

test("objects in a bucket have no directory", async () => {
  expect(await placeIn("other", { VIV_OBJECTS: "s3://bucket/vivarium" })).toMatchObject({
    objectsDir: undefined,
  });
});
