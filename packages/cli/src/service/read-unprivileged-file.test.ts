import { link, mkdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readUnprivilegedFile } from "./read-unprivileged-file.ts";

inOwnDirectories();

test("a plain file is read; a link to another file is not", async () => {
  const folder = path.join(dir, "folder");
  await mkdir(folder);
  const named = (name: string) => path.join(folder, name);
  await writeFile(path.join(dir, "secret"), "secret");
  await writeFile(path.join(dir, "other"), "other");
  await writeFile(named("plain"), "key\n");
  await symlink(path.join(dir, "secret"), named("symbolic"));
  await link(path.join(dir, "other"), named("hard"));
  expect((await readUnprivilegedFile(named("plain"))).text).toBe("key\n");
  await expect(readUnprivilegedFile(named("symbolic"))).rejects.toMatchObject({ code: "ELOOP" });
  await expect(readUnprivilegedFile(named("hard"))).rejects.toThrow("has other names");
  await expect(readUnprivilegedFile(named("missing"))).rejects.toMatchObject({ code: "ENOENT" });
});
