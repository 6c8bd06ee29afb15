import { spawnSync } from "node:child_process";
import { chown, cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

let root: string;

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), "compiled-code-"));
  await cp(
    path.join(import.meta.dirname, "compiled-code.ts"),
    path.join(root, "packages/kit/src/compiled-code.ts"),
  );
  await writeFile(path.join(root, "package.json"), '{"type": "module"}');
  await writeFile(path.join(root, "imported.ts"), "export const answer: number = 42;");
  await writeFile(
    path.join(root, "main.ts"),
    `import { keepCompiledCode } from "./packages/kit/src/compiled-code.ts";
     keepCompiledCode();
     const { answer } = await import("./imported.ts");
     console.log(answer);`,
  );
});

afterEach(() => rm(root, { recursive: true }));

function runMain(): string {
  const env = { NODE_DEBUG_NATIVE: "COMPILE_CACHE" };
  const { stdout, stderr } = spawnSync(process.execPath, ["main.ts"], { cwd: root, encoding: "utf8", env });
  return stdout + stderr;
}

test("what a program imports is compiled once, and read compiled by its next start", () => {
  const [first, next] = [runMain(), runMain()];
  const isRead = /cache for ESM \S*imported\.ts was accepted/;
  expect(first).not.toMatch(isRead);
  expect(next).toMatch(isRead);
  for (const output of [first, next]) expect(output).toMatch(/^42$/m);
});

test("nothing is kept in a checkout of another user", async () => {
  await chown(root, 65534, 65534);
  expect(runMain()).toContain("42");
  expect(await readdir(root)).not.toContain(".compiled");
});
