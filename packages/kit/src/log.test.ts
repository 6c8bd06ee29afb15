import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, onTestFinished, test } from "vitest";
import { createLog } from "./log.ts";

const MODULE = path.join(import.meta.dirname, "log.ts");
/** Logs lines, with time for each to fail, and then says on standard error that the process lives. */
const PROGRAM = `
import { setTimeout } from "node:timers/promises";
import { createLog } from ${JSON.stringify(MODULE)};
const log = createLog("test");
for (const line of ["one", "two", "three"]) { log.info({ token: "hidden" }, line); await setTimeout(20); }
process.stderr.write("alive");
`;

/** Runs the program with its standard output in a file; resolves with what it wrote to standard error. */
async function logInto(file: string): Promise<string> {
  const script = 'exec "$0" --input-type=module --eval "$1" > "$2"';
  const argv = ["-c", script, process.execPath, PROGRAM, file];
  return (await promisify(execFile)("sh", argv, { timeout: 20_000 * SLOWNESS, killSignal: "SIGKILL" }))
    .stderr;
}

test("a disk that is full costs lines, not the process", async () => {
  expect(await logInto("/dev/full")).toBe("alive");
});

test("a line is JSON with the process and the time in UTC, without secrets", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "viv-log-"));
  onTestFinished(() => rm(dir, { recursive: true, force: true }));
  expect(await logInto(path.join(dir, "log"))).toBe("alive");
  const lines = (await readFile(path.join(dir, "log"), "utf8")).trim().split("\n");
  expect(lines.map((line) => JSON.parse(line))).toEqual(
    ["one", "two", "three"].map((msg) => ({
      ...{ level: 30, process: "test", name: "test", token: "[removed]", msg },
      time: expect.stringMatching(/^\d{4}-.*Z$/),
    })),
  );
});

test("fields that are named as secrets are taken out at three levels, and others stay", () => {
  const names = [
    "authorization",
    "api_key",
    "apiKey",
    "key",
    "token",
    "secret",
    "secrets",
    "password",
    "env",
  ];
  const lines: string[] = [];
  const log = createLog("test", "info", { write: (line) => void lines.push(line) });
  const fields = Object.fromEntries(names.map((name) => [name, "hidden"]));
  log.info({ ...fields, name: "shown", one: { ...fields, two: fields } }, "first");
  log.child({ request: fields }).info({ secrets: { A: "hidden" }, env: ["hidden"] }, "second");
  expect(lines.join("")).not.toContain("hidden");
  const [first = "", second = ""] = lines;
  const removed = Object.fromEntries(names.map((name) => [name, "[removed]"]));
  expect(JSON.parse(first)).toMatchObject({ ...removed, one: { ...removed, two: removed } });
  expect(first).toContain("shown");
  expect(JSON.parse(second)).toMatchObject({ request: removed, secrets: "[removed]", env: "[removed]" });
});
