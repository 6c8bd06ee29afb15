/** `viv run`: a program is a file in its machine, as it is outside, and neither file nor machine is left over. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startViv } from "../support/command-line.ts";
import { eventually } from "../support/eventually.ts";
import { client } from "../support/http.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "viv-run-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const PYTHON = `
import os, sys
# ${"x".repeat(200_000)}
print(__name__, os.path.isfile(__file__), sys.argv[1:])
sys.exit(3)
`;
const COMMON_JS =
  'if (require.main === module) console.log("main", require("node:path").basename(__filename));';
const MODULE =
  'import { basename } from "node:path"; await 0; console.log(basename(import.meta.filename), import.meta.main);';
const TYPED = "const isMain: boolean = import.meta.main; console.log(isMain, import.meta.file);";

test.each([
  ["hello.py", PYTHON, "__main__ True []\n", 3],
  ["hello.js", COMMON_JS, "main main.js\n", 0],
  ["hello.mjs", MODULE, "main.mjs true\n", 0],
  ["hello.tsx", TYPED, "true main.tsx\n", 0],
])("%s knows its own name, and viv exits with its code", async (name, text, out, code) => {
  const file = join(folder, name);
  writeFileSync(file, text);
  const ended = await startViv("run", "--no-start", "--timeout", "2m", file).ended;
  expect(ended).toMatchObject({ code, out });
});

test("no session is left of it", async () => {
  await eventually(async () => {
    const { sessions } = await client.sessions.list({ limit: 500 });
    expect(sessions.filter((session) => session.destroy_on_completion)).toEqual([]);
  });
});
