/** Runs the commands of a run with this host's Node; a template's Node takes the same ones. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { LANGUAGE_COMMANDS } from "./commands.ts";

test.each([
  ["a CommonJS script", "const { basename } = require('node:path'); console.log(basename('/a/b'), 7);"],
  ["an ES module", "import { basename } from 'node:path'; console.log(basename('/a/b'), await 7);"],
])("Node is given %s in the same file", async (_what, code) => {
  const { file, run } = LANGUAGE_COMMANDS.node;
  const cwd = await mkdtemp(join(tmpdir(), "viv-run-"));
  try {
    await writeFile(join(cwd, basename(file)), code);
    const ended = await promisify(execFile)(process.execPath, run.slice(1), { cwd, env: {} });
    expect(ended).toEqual({ stdout: "b 7\n", stderr: "" });
  } finally {
    await rm(cwd, { recursive: true });
  }
});
