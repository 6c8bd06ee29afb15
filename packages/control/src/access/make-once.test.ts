/** Files that are made once: of a process that died while it made one, the next start leaves nothing. */
import { linkSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { expect, onTestFinished, test } from "vitest";
import { Keyring } from "../secrets/keyring.ts";
import { loadKeyFile } from "./key-file.ts";
import { loadOperatorKey } from "./operator-key.ts";

const LOADS: Record<string, (dir: string) => Promise<unknown>> = {
  pepper: (dir) => loadKeyFile(path.join(dir, "pepper")),
  "operator.key": (dir) => loadOperatorKey(dir),
  kek: (dir) => Keyring.load({ kind: "file", file: path.join(dir, "kek"), mayMake: true }),
};

function folder(): string {
  const dir = mkdtempSync(path.join(tmpdir(), "make-once-"));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  return dir;
}

test.each(Object.entries(LOADS))("%s has one name and no copy after a start", async (name, load) => {
  const dir = folder();
  const file = path.join(dir, name);
  // A process died before it had linked its copy, another one while it wrote its own.
  writeFileSync(`${file}.${randomId()}`, "of a start that died");
  writeFileSync(`${file}.${randomId()}.tmp`, "of a sta");
  writeFileSync(`${file}.old`, "the operator's");
  const made = await load(dir);
  expect(readdirSync(dir).toSorted()).toEqual([name, `${name}.old`]);
  // And one after it had.
  linkSync(file, `${file}.${randomId()}`);
  expect(statSync(file).nlink).toBe(2);
  expect(await load(dir)).toMatchObject(name === "kek" ? {} : (made as object));
  expect(readdirSync(dir).toSorted()).toEqual([name, `${name}.old`]);
  expect(statSync(file).nlink).toBe(1);
});

test.each(Object.entries(LOADS))("starts at the same time load one %s", async (name, load) => {
  for (let round = 0; round < 20; round++) {
    const dir = folder();
    await Promise.all(Array.from({ length: 8 }, () => load(dir)));
    expect(readdirSync(dir)).toEqual([name]);
  }
});
