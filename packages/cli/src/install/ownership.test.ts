import { chown, lchown, lstat, mkdir, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { type Layout, layoutOf, makeUserDirs } from "../supervisor/layout.ts";
import { disown, disownStore, isOwnedStore, ownedBy } from "./ownership.ts";

inOwnDirectories();

const USER = { name: "of-the-service", uid: 64_998, gid: 64_997 };
const LATER = { name: "of-the-service", uid: 64_996, gid: 64_995 };
const OTHER = 64_994;

let layout: Layout;
let outside: string;
beforeEach(async () => {
  const dataDir = path.join(dir, "data");
  layout = layoutOf(dataDir);
  outside = path.join(dir, "outside");
  await writeFile(outside, "of somebody");
  await chown(outside, USER.uid, USER.gid);
  for (const name of ["run", "pool/m", "postgres/data", "control.before-restore-1"])
    await mkdir(path.join(dataDir, name), { recursive: true });
  await makeUserDirs(layout, USER);
  for (const name of [
    "control/pepper",
    "postgres/data/PG_VERSION",
    "control.before-restore-1/pepper",
    "pool/m/disk",
  ]) {
    const file = path.join(dataDir, name);
    await writeFile(file, "secret", { mode: 0o600 });
    await chown(file, USER.uid, USER.gid);
  }
  await symlink(outside, path.join(layout.controlDir, "link"));
  await lchown(path.join(layout.controlDir, "link"), USER.uid, USER.gid);
  await writeFile(path.join(layout.controlDir, "of-another"), "");
  await chown(path.join(layout.controlDir, "of-another"), OTHER, OTHER);
});

const ownerOf = async (name: string) => (await lstat(path.join(layout.dataDir, name))).uid;

test("keys and database are root's once the users of the service go, and nothing else changes its owner", async () => {
  expect((await ownedBy(layout.dataDir, [USER])).toSorted()).toEqual([
    "control",
    "control.before-restore-1",
    "postgres",
  ]);
  await disown(layout.dataDir, [USER, undefined]);
  for (const name of [
    "control",
    "control/pepper",
    "control/link",
    "postgres/data/PG_VERSION",
    "control.before-restore-1/pepper",
  ])
    expect([name, await ownerOf(name)]).toEqual([name, 0]);
  expect((await stat(path.join(layout.controlDir, "pepper"))).mode & 0o777).toBe(0o600);
  expect((await stat(outside)).uid).toBe(USER.uid);
  expect(await ownerOf("control/of-another")).toBe(OTHER);
  expect(await ownedBy(layout.dataDir, [USER])).toEqual([]);
});

test("without the users, and in a directory that has none of their files, there is nothing to do", async () => {
  expect(await ownedBy(layout.dataDir, [undefined])).toEqual([]);
  expect(await ownedBy(path.join(dir, "none"), [USER])).toEqual([]);
});

test("the next start gives the keys to the user of then, and neither links nor files of others", async () => {
  await disown(layout.dataDir, [USER]);
  await makeUserDirs(layout, LATER);
  expect(await ownerOf("control")).toBe(LATER.uid);
  expect(await ownerOf("control/pepper")).toBe(LATER.uid);
  expect((await stat(path.join(layout.controlDir, "pepper"))).gid).toBe(LATER.gid);
  expect(await ownerOf("control/link")).toBe(0);
  expect(await ownerOf("control/of-another")).toBe(OTHER);
});

test("a directory that is the user's already is left as it is: what root has in it stays root's", async () => {
  await writeFile(path.join(layout.controlDir, "of-root"), "");
  await makeUserDirs(layout, USER);
  expect(await ownerOf("control/of-root")).toBe(0);
});

test("a store of objects becomes root's too, also behind a link", async () => {
  const disk = path.join(dir, "disk");
  await mkdir(path.join(disk, "objects/org_a"), { recursive: true });
  await chown(path.join(disk, "objects/org_a"), USER.uid, USER.gid);
  const store = path.join(layout.dataDir, "objects");
  await symlink(disk, store);
  expect(await isOwnedStore(store, [USER])).toBe(true);
  await disownStore(store, [USER, undefined]);
  expect([await ownerOf("objects/objects/org_a"), await isOwnedStore(store, [USER])]).toEqual([0, false]);
  expect(await isOwnedStore(path.join(dir, "none"), [USER])).toBe(false);
});
