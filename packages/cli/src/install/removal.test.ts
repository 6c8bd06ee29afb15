import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { cacheStep, ourData, type Removal, stepsOf } from "./removal.ts";

inOwnDirectories();

let removal: Removal;
beforeEach(async () => {
  removal = {
    name: "viv-test-of-nobody",
    unitFile: path.join(dir, "etc/viv-test-of-nobody.service"),
    settingsFile: path.join(dir, "etc/vivarium/viv-test-of-nobody.env"),
    dataDir: path.join(dir, "data"),
    withData: false,
    // Never true here: the shared things are this host's.
    isLast: false,
    copiesDir: path.join(dir, "copies/viv-test-of-nobody"),
    cacheDirs: [path.join(dir, "cache")],
  };
  await mkdir(path.dirname(removal.settingsFile), { recursive: true });
  await mkdir(path.join(removal.copiesDir, "0.1.0-abc/packages"), { recursive: true });
  await writeFile(removal.settingsFile, "VIV_LISTEN=127.0.0.1:7500\n", { mode: 0o600 });
  for (const name of [
    "control",
    "postgres/data",
    "pool/s/pau_1",
    "qemu-root",
    "run",
    "objects/objects/org_a",
    "objects/incoming",
    ".viv-backup-7-8-objects",
    "control.before-restore-1",
  ])
    await mkdir(path.join(removal.dataDir, name), { recursive: true });
  await writeFile(path.join(removal.dataDir, "pool.img"), "");
});

/** Removes all that is there. Returns what was, and what could not be removed. */
async function run(which: Removal) {
  const [removed, left]: string[][] = [[], []];
  for (const { what, isThere, remove } of stepsOf(which)) {
    if (!(await isThere())) continue;
    await remove().then(
      () => removed?.push(what),
      () => left?.push(what),
    );
  }
  return { removed, left };
}

test("without the data, the settings move into the data directory, and everything in it stays", async () => {
  const { left } = await run(removal);
  expect(left).toEqual([]);
  expect(existsSync(removal.settingsFile)).toBe(false);
  const kept = path.join(removal.dataDir, "settings.env");
  expect(await readFile(kept, "utf8")).toBe("VIV_LISTEN=127.0.0.1:7500\n");
  expect((await stat(kept)).mode & 0o777).toBe(0o600);
  for (const name of ["control", "postgres/data", "objects/objects/org_a", "pool/s/pau_1", "pool.img"])
    expect(existsSync(path.join(removal.dataDir, name))).toBe(true);
  expect(existsSync(path.join(removal.dataDir, "run"))).toBe(false);
  expect(await readdir(removal.copiesDir)).toEqual([]);
});

test("with the data nothing is left, and a repetition finds nothing", async () => {
  const whole = { ...removal, withData: true };
  expect((await run(whole)).left).toEqual([]);
  expect([existsSync(removal.dataDir), existsSync(removal.settingsFile)]).toEqual([false, false]);
  expect(await run(whole)).toEqual({ removed: [], left: [] });
});

test("objects in a directory of the operator's go with the data if it is inside, also behind a link; outside it stays", async () => {
  const [inside, outside, disk] = ["data/files", "outside", "disk"].map((name) => path.join(dir, name)) as [
    string,
    string,
    string,
  ];
  for (const store of [inside, outside, disk])
    for (const name of ["objects/org_a", "incoming", "uploads"])
      await mkdir(path.join(store, name), { recursive: true });
  await rm(path.join(removal.dataDir, "objects"), { recursive: true });
  await symlink(disk, path.join(removal.dataDir, "objects"));

  expect((await run({ ...removal, objectsDir: outside, withData: false })).left).toEqual([]);
  expect((await readdir(disk)).length).toBe(3);
  expect((await run({ ...removal, objectsDir: inside })).left).toEqual([]);
  expect(existsSync(path.join(inside, "objects/org_a"))).toBe(true);

  const whole = { ...removal, withData: true };
  const { removed } = await run({ ...whole, objectsDir: inside });
  expect(removed).toContain(`files of artifacts in ${inside}`);
  expect(existsSync(inside)).toBe(false);
  await mkdir(removal.dataDir, { recursive: true });
  await symlink(disk, path.join(removal.dataDir, "objects"));
  expect((await run({ ...whole, objectsDir: path.join(removal.dataDir, "objects") })).left).toEqual([]);
  expect([existsSync(removal.dataDir), await readdir(disk)]).toEqual([false, []]);
  expect((await run({ ...whole, objectsDir: outside })).left).toEqual([]);
  expect((await readdir(outside)).toSorted()).toEqual(["incoming", "objects", "uploads"]);
});

test("what somebody else put into the data directory stays, and is said to be left", async () => {
  await writeFile(path.join(removal.dataDir, "notes.txt"), "mine");
  const { left } = await run({ ...removal, withData: true });
  expect(left).toEqual([`directory ${removal.dataDir}`]);
  expect(await readFile(path.join(removal.dataDir, "notes.txt"), "utf8")).toBe("mine");
  expect(existsSync(path.join(removal.dataDir, "control"))).toBe(false);
});

test("of the cache only what set-up made is removed, and the directory if nothing else is in it", async () => {
  const cacheDir = path.join(dir, "cache");
  await mkdir(path.join(cacheDir, "kernel/1"), { recursive: true });
  await writeFile(path.join(cacheDir, "notes.txt"), "mine");
  const step = cacheStep(cacheDir);
  await step.remove();
  expect(await readdir(cacheDir)).toEqual(["notes.txt"]);
  expect(await step.isThere()).toBe(false);
  await rm(path.join(cacheDir, "notes.txt"));
  await mkdir(path.join(cacheDir, "agent"));
  await step.remove();
  expect(existsSync(cacheDir)).toBe(false);
});

test("what all services share is removed with the last one alone", () => {
  const shared = /needrestart|nft table|cgroup|\/run\/vivarium$|^user /;
  const whats = (isLast: boolean) => stepsOf({ ...removal, isLast }).map(({ what }) => what);
  expect(whats(false).filter((what) => shared.test(what))).toEqual([]);
  expect(whats(true).filter((what) => shared.test(what))).toHaveLength(6);
});

test("data that stays is root's before the users are removed, also where they stay for another service", () => {
  const whats = (which: Partial<Removal>) => stepsOf({ ...removal, ...which }).map(({ what }) => what);
  const rights = `rights of the service's users to keys and database in ${removal.dataDir}, which are root's now`;
  const last = whats({ isLast: true });
  expect(last.filter((what) => what === rights || what.startsWith("user "))).toEqual([
    rights,
    "user vivarium-gateway",
    "user vivarium",
  ]);
  expect(whats({})).toContain(rights);
  expect(whats({ isLast: true, withData: true })).not.toContain(rights);
});

test("a link to the data directory, once empty, is nothing that is left", async () => {
  const link = path.join(dir, "link");
  await symlink(removal.dataDir, link);
  const whole = { ...removal, dataDir: link, withData: true };
  expect((await run(whole)).left).toEqual([]);
  expect([await readdir(link), await run(whole)]).toEqual([[], { removed: [], left: [] }]);
});

test("the lock of updates outlives the copies: no install begins before the uninstall ends", async () => {
  await writeFile(path.join(removal.copiesDir, "update.lock"), "mine");
  await writeFile(path.join(removal.copiesDir, "update.json"), "{}");
  expect((await run(removal)).removed).toContain(removal.copiesDir);
  expect(await readdir(removal.copiesDir)).toEqual(["update.lock"]);
  expect((await run(removal)).removed).toEqual([]);
});

test("of the data go last the files by which a repeated uninstall knows the directory", async () => {
  await writeFile(path.join(removal.dataDir, "setup.stamp"), "1");
  expect((await ourData(removal.dataDir)).slice(-2)).toEqual(["control", "setup.stamp"]);
});
