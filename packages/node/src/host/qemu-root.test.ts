import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, it, vi } from "vitest";
import { prepareQemuRoot, rootOf } from "./qemu-root.ts";

it("a saved state gets the root of the build that made it, as long as that is on this host", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "qemu-root-"));
  const [now, before, elsewhere] = ["a".repeat(64), "b".repeat(64), "c".repeat(64)];
  const dirOf = (build: string) => path.join(dataDir, "qemu-root", build.slice(0, 16));
  for (const build of [now, before]) await mkdir(dirOf(build), { recursive: true });
  const root = { dir: dirOf(now), buildId: now };
  expect(rootOf(root, now)).toBe(dirOf(now));
  expect(rootOf(root, before)).toBe(dirOf(before));
  expect(rootOf(root, elsewhere)).toBeUndefined();
  await rm(dataDir, { recursive: true });
});

it("a root is made once, and again if the host's libraries changed", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "qemu-root-"));
  const { dir } = await prepareQemuRoot(dataDir);
  const made = await stat(dir);
  await prepareQemuRoot(dataDir);
  expect((await stat(dir)).ino).toBe(made.ino);

  const sources = await readFile(`${dir}.sources`, "utf8");
  expect(sources).toMatch(/^\/.*libc\.so\.6 \d+ [\d.]+$/m);
  await writeFile(`${dir}.sources`, sources.replace(/(libc\.so\.6) \d+/, "$1 1"));
  await writeFile(path.join(dir, "of-before"), "");
  await prepareQemuRoot(dataDir);
  await expect(stat(path.join(dir, "of-before"))).rejects.toThrow("ENOENT");
  expect((await stat(path.join(dir, "usr/bin/qemu-system-x86_64"))).size).toBeGreaterThan(0);
  expect(await readFile(`${dir}.sources`, "utf8")).toBe(sources);
  await rm(dataDir, { recursive: true });
});

it("a machine keeps the root that it runs in, with its mount points, until it ends", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "qemu-root-"));
  const { dir } = await prepareQemuRoot(dataDir);
  const own = path.join(dataDir, "own");
  await mkdir(own);
  const jailed = ["--dev", "/dev", "--bind", own, "/run", "--unshare-pid", "--as-pid-1", "--die-with-parent"];
  const command = ["/usr/bin/qemu-system-x86_64", "-M", "none", "-display", "none", "-qmp", "stdio"];
  const machine = spawn("/usr/bin/bwrap", ["--ro-bind", dir, "/", ...jailed, ...command]);
  await once(machine.stdout, "data");

  await rm(`${dir}.sources`);
  await prepareQemuRoot(dataDir);
  machine.stdin.write('{"execute":"qmp_capabilities"}\n');
  await once(machine.stdout, "data");
  const save = { execute: "xen-save-devices-state", arguments: { filename: "/run/state" } };
  machine.stdin.write(`${JSON.stringify({ execute: "stop" })}\n${JSON.stringify(save)}\n`);
  let said = "";
  for await (const chunk of machine.stdout) {
    said += chunk;
    if (said.includes('"error"') || said.split('"return"').length === 3) break;
  }
  expect(said).not.toContain('"error"');
  expect(await readdir(own)).toEqual(["state"]);

  machine.kill("SIGKILL");
  await once(machine, "close");
  const name = path.basename(dir);
  const isLeft = async () => {
    await prepareQemuRoot(dataDir);
    expect((await readdir(path.dirname(dir))).sort()).toEqual([name, `${name}.sources`]);
  };
  await vi.waitFor(isLeft, { timeout: 30_000 * SLOWNESS });
  await rm(dataDir, { recursive: true });
});
