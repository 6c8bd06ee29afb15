import { mkdir, symlink } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { databasePlace } from "../backup/database.ts";
import { readConfig } from "../config.ts";
import { configInForce, withConfigInForce } from "./config-in-force.ts";
import type { Installed } from "./installed.ts";

inOwnDirectories();

const FILE = "/etc/vivarium/test.env";
const SETTINGS = {
  DATABASE_URL: "postgres://own/of-the-unit",
  VIV_CONTROL_USER: "somebody",
  VIV_OBJECTS_DIR: "/srv/objects",
};
let unit: Installed;
beforeEach(async () => {
  const dataDir = path.join(dir, "data");
  await mkdir(dataDir);
  await symlink(dataDir, path.join(dir, "link"));
  unit = { name: "test", unitFile: "/nowhere/u", settingsFile: FILE, dataDir, settings: SETTINGS };
});

const list = async () => [unit];
const callerOf = (name: string, env: Record<string, string> = {}) =>
  readConfig({ VIV_DATA_DIR: path.join(dir, name), ...env });

/** The places that a command such as `viv backup` works with, and what it says first. */
async function workWith(name: string, env: Record<string, string> = {}) {
  const said: string[] = [];
  const terminal = { note: (line: string) => void said.push(line) } as never;
  const { config } = await withConfigInForce({ config: callerOf(name, env), terminal }, list);
  return { place: databasePlace(config), said };
}

test.each(["data", "link", "link/.", "nowhere/../data"])(
  "the settings of the unit that serves the data directory named as %s count",
  async (name) => {
    const { place, said } = await workWith(name);
    const { DATABASE_URL: url, VIV_CONTROL_USER: controlUser, VIV_OBJECTS_DIR: objectsDir } = SETTINGS;
    expect([place, said]).toEqual([{ url, controlUser, objectsDir, localDir: objectsDir }, []]);
  },
);

test("settings of the caller's shell that say otherwise do not count for a unit, and are named without their values", async () => {
  const env = {
    DATABASE_URL: "postgres://app:secret@host/app",
    VIV_OBJECTS: "s3://app",
    VIV_URL: "http://h",
  };
  const { place, said } = await workWith("link", { ...env, VIV_CONTROL_USER: "somebody" });
  expect(place).toMatchObject({ url: SETTINGS.DATABASE_URL, objectsDir: "/srv/objects" });
  expect(said).toEqual([
    `viv: ${FILE} counts here, and not the environment, which has other values of DATABASE_URL, VIV_OBJECTS`,
  ]);
});

test("a unit with the built-in database has that, whatever the caller's shell names", async () => {
  unit = { ...unit, settings: {} };
  const { place, said } = await workWith("data", { DATABASE_URL: "postgres://app" });
  expect(place).toMatchObject({ url: undefined, objectsDir: path.join(dir, "data/objects") });
  expect(said).toEqual([expect.stringContaining("another value of DATABASE_URL")]);
});

test("where no unit serves the data directory the environment counts", async () => {
  const config = callerOf("other", { DATABASE_URL: "postgres://own", VIV_ACCEL: "tcg" });
  expect(await configInForce(config, list)).toEqual({ config });
});
