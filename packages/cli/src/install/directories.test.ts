import { execFile } from "node:child_process";
import { mkdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { emptyPlace, isSameDir } from "./directories.ts";

inOwnDirectories();

test("a link is an empty place once its directory is empty; a plain directory never is", async () => {
  const [real, link] = [path.join(dir, "real"), path.join(dir, "link")];
  await mkdir(real);
  await symlink(real, link);
  expect([await emptyPlace(link), await emptyPlace(real), await emptyPlace(path.join(dir, "none"))]).toEqual([
    "link",
    undefined,
    undefined,
  ]);
  await writeFile(path.join(real, "notes.txt"), "mine");
  expect(await emptyPlace(link)).toBeUndefined();
});

test("a mount point is an empty place, also with the lost+found of a fresh filesystem", async () => {
  const file = fileURLToPath(new URL("./directories.ts", import.meta.url));
  const program = `import { emptyPlace } from "${file}"; console.log(await emptyPlace("${dir}"));`;
  const node = `"$0" --no-warnings --input-type=module -e "$1"`;
  const script = `mount -t tmpfs none "$2" && mkdir "$2/lost+found" && ${node} && touch "$2/a" && ${node}`;
  const argv = ["--map-root-user", "--mount", "sh", "-c", script, process.execPath, program, dir];
  const { stdout } = await promisify(execFile)("unshare", argv);
  expect(stdout).toBe("mount\nundefined\n");
});

test("paths are one directory if links lead to it, also where it does not exist yet", async () => {
  await mkdir(path.join(dir, "real"));
  await symlink(path.join(dir, "real"), path.join(dir, "link"));
  expect(isSameDir(path.join(dir, "link"), path.join(dir, "real"))).toBe(true);
  expect(isSameDir(path.join(dir, "link/a/b"), path.join(dir, "real/a/b"))).toBe(true);
  expect(isSameDir(path.join(dir, "link/a"), path.join(dir, "real/b"))).toBe(false);
});
