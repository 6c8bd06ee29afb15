import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { claimSlots } from "./claims.ts";
import { orphanedSlots } from "./slots.ts";

const CLAIMS = fileURLToPath(new URL("./claims.ts", import.meta.url));
/** A data directory that was deleted. */
const OWNER = "/nowhere/deleted";

let claimsDir: string;
let slotsDir: string;

beforeEach(async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "claims-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  [claimsDir, slotsDir] = [path.join(folder, "claims"), path.join(folder, "slots")];
  await mkdir(slotsDir);
  await writeFile(path.join(slotsDir, "7"), OWNER);
  await writeFile(path.join(slotsDir, "8"), "/nowhere/else");
});

const nobodys = async () =>
  (await orphanedSlots({ slotsDir, claimsDir })).map(({ number }) => number).toSorted();

/** Runs this script in another process. */
function other(script: string): ChildProcess {
  const program = `import { claimSlots, waitForOlderClaims } from "${CLAIMS}"; ${script}`;
  const argv = ["--no-warnings", "--input-type=module", "-e", program];
  return spawn(process.execPath, argv, { stdio: ["pipe", "pipe", "inherit"] });
}

test("slots of a running service stay its own, also if its data directory is deleted, until its process is gone", async () => {
  const service = other(
    `await claimSlots("${OWNER}", "${claimsDir}"); process.stdout.write("claimed"); process.stdin.resume();`,
  );
  await once(service.stdout as NodeJS.ReadableStream, "data");
  expect(await nobodys()).toEqual([8]);
  const gone = once(service, "exit");
  service.kill("SIGKILL");
  await gone;
  expect(await nobodys()).toEqual([7, 8]);
  expect(await readdir(claimsDir)).toEqual([]);
});

test("a service that stops gives up its slots", async () => {
  const leave = await claimSlots(OWNER, claimsDir);
  expect(await nobodys()).toEqual([8]);
  await leave();
  expect(await nobodys()).toEqual([7, 8]);
});

test("a second node over one data directory waits for the first one to end, and gives up with its pid", async () => {
  const leave = await claimSlots(OWNER, claimsDir);
  const second = (limitMs: number) =>
    other(
      `await claimSlots("${OWNER}", "${claimsDir}");
       const said = await waitForOlderClaims("${OWNER}", ${limitMs}, "${claimsDir}").then(() => "alone", (error) => error.message);
       process.stdout.write(said);`,
    );
  const toEnd = (child: ChildProcess) => text(child.stdout as NodeJS.ReadableStream);
  expect(await toEnd(second(0))).toContain(`another node (pid ${process.pid}) runs over ${OWNER}`);
  const waiting = toEnd(second(30_000 * SLOWNESS));
  await expect.poll(() => readdir(claimsDir)).toHaveLength(2);
  await leave();
  expect(await waiting).toBe("alone");
});

test("slots of a data directory that exists, and of its bakes, keep their owner, also with a # in its name", async () => {
  const folder = path.join(path.dirname(slotsDir), "x#y");
  await mkdir(folder);
  for (const [name, owner] of [
    ["9", folder],
    ["10", `${folder}#bake`],
    ["11", `${folder}#z`],
    ["12", "/nowhere/deleted#bake"],
  ] as const)
    await writeFile(path.join(slotsDir, name), owner);
  expect((await nobodys()).toSorted((a, b) => a - b)).toEqual([7, 8, 11, 12]);
});
