/** A group of this host's real cgroup v2 hierarchy for one test, below a mount of its own, with processes in it. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmdirSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { onTestFinished } from "vitest";
import { entering } from "../src/host/cgroup.ts";
import { removeGroup } from "../src/host/cgroup-removal.ts";

const CLEAN_UP_MS = 10_000;

/** An empty group, which is removed with all below it after the test. */
export function makeTestGroup(): string {
  const mount = mkdtempSync(path.join(tmpdir(), "cgroup2-"));
  execFileSync("mount", ["-t", "cgroup2", "none", mount]);
  const group = path.join(mount, `viv-test-${randomId(8)}`);
  mkdirSync(group);
  onTestFinished(async () => {
    await removeGroup(group, CLEAN_UP_MS);
    execFileSync("umount", [mount]);
    rmdirSync(mount);
  });
  return group;
}

/** Runs a shell script in the group. Resolves when it has printed a line. */
export async function startIn(group: string, script: string): Promise<ChildProcess> {
  const [program = "", ...args] = entering(group, ["/bin/sh", "-c", `${script}\necho ready\nwait`]);
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], env: {} });
  const failed = new Promise<never>((_, reject) =>
    child.once("exit", (code) => reject(new Error(`the script ended with ${code}`))),
  );
  failed.catch(() => {});
  await Promise.race([new Promise((resolve) => child.stdout.once("data", resolve)), failed]);
  return child;
}

/** Makes the kernel ignore the kill of the group until the returned function is called. */
export function ignoreKills(group: string): () => void {
  const file = path.join(group, "cgroup.kill");
  execFileSync("mount", ["--bind", "/dev/null", file]);
  let isIgnored = true;
  const stop = () => {
    if (isIgnored) execFileSync("umount", [file]);
    isIgnored = false;
  };
  onTestFinished(stop);
  return stop;
}

export const pidsIn = (group: string) =>
  readFileSync(path.join(group, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
