import { link, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { loadRows } from "./rows.ts";

inOwnDirectories();

const load = (file: string) =>
  loadRows("postgresql://nobody@127.0.0.1:1/none", file, { keepAside: "update" });

test.each([
  ["a link", "it is a link", (file: string) => symlink(path.join(dir, "secret"), file)],
  ["a pipe", "no plain file", (file: string) => runHostCommand("mkfifo", [file])],
  ["another name of a file", "has other names", (file: string) => link(path.join(dir, "secret"), file)],
])("rows that are %s, which control's user may have made, are not read", async (_what, reason, make) => {
  const file = path.join(dir, "control/rows-0001-20270301T093000123.jsonl");
  await writeFile(path.join(dir, "secret"), "of root");
  await make(file);
  await expect(load(file)).rejects.toThrow(reason);
});

test("rows that are a plain file are read", async () => {
  const file = path.join(dir, "control/rows-0001-20270301T093000123.jsonl");
  await writeFile(file, '{"schema":1}\n');
  await expect(load(file)).rejects.toThrow("cannot load the database's rows");
});
