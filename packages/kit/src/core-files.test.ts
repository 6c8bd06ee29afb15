import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";

const ABORT = `
const { forbidCoreFiles } = await import(process.argv[1]);
if (process.argv[2] === "forbidden") await forbidCoreFiles();
process.abort();`;
/** Where the kernel writes core files into the folder of the process. Elsewhere a program of the host takes them. */
const HERE = !/[/|]/.test(readFileSync("/proc/sys/kernel/core_pattern", "utf8"));

/** Files that a process leaves in its folder when it aborts, although it was started with no limit. */
async function filesOf(how: string): Promise<string[]> {
  const dir = mkdtempSync(path.join(tmpdir(), "viv-core-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const module = path.join(import.meta.dirname, "core-files.ts");
  const node = [process.execPath, "--input-type=module", "-e", ABORT, module, how];
  const child = spawn("prlimit", ["--core=unlimited", ...node], { cwd: dir, stdio: "ignore" });
  expect(await once(child, "exit")).toEqual([null, "SIGABRT"]);
  return readdirSync(dir);
}

test.runIf(HERE)(
  "a process that crashes leaves no core file, and leaves one if they are not forbidden",
  async () => {
    expect(await filesOf("forbidden")).toEqual([]);
    expect(await filesOf("as it is")).toEqual([expect.stringContaining("core")]);
  },
);
