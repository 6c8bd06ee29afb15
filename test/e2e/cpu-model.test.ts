/**
 * The CPU model of guests: a level that is baked is what its machines have, and a saved state of another CPU is refused
 * before its QEMU starts. With emulation as with KVM, whichever this host has.
 */
import { execFile } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client, type Session } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { describeHostCpu } from "../../packages/node/src/qemu/host-cpu.ts";
import { Manifest, readManifest } from "../../packages/node/src/snapshots/manifest.ts";
import { startSpec } from "../contract/contracted-node.ts";
import { unshare } from "../support/damage.ts";
import { sh } from "../support/http.ts";
import { machineTraces } from "../support/machine-traces.ts";
import { type NodeCaller, nodeCaller } from "../support/node-caller.ts";
import { IMAGES, type Service, startService, suspendControl } from "../support/service.ts";

const ROOT = join(import.meta.dirname, "../..");
const OTHER_CPU = "AMD EPYC 0000 (AuthenticAMD, family 0, model 0)";
/** Emulation has no AVX-512, and every host of these tests has the level below it. */
const LEVEL = "x86-64-v3";

/** As the baselines of these tests were made. */
const accelerator = (await readManifest(join(IMAGES, "templates/base/current/small"))).accelerator;
const imagesDir = join(IMAGES, "../tests", `${randomId(8)}-images`);

let own: Service;
let client: Client;
let node: NodeCaller;

beforeAll(async () => {
  const version = join(imagesDir, "templates/base/1");
  mkdirSync(version, { recursive: true });
  symlinkSync(join(IMAGES, "kernel"), join(imagesDir, "kernel"));
  symlinkSync("1", join(imagesDir, "templates/base/current"));
  for (const name of ["root.ext4", "template.json"])
    cpSync(join(IMAGES, "templates/base/current", name), join(version, name), { mode: 2 });
  const { code, said } = await bake(LEVEL);
  expect(code, said).toBe(0);
  own = await startService({ imagesDir });
  client = new Client({ url: own.facts.url, apiKey: own.facts.apiKey, retries: 0 });
  node = nodeCaller(own.facts.nodeSocket);
}, 400_000 * SLOWNESS);
afterAll(async () => {
  await own?.stop();
  rmSync(imagesDir, { recursive: true, force: true });
});

async function create() {
  const { session_id: id } = await client.sessions.create();
  await client.sessions.waitUntilLive(id);
  return client.session(id);
}

/** `within`: a command that runs the bake, as its last words. */
function bake(model: string, within: string[] = []): Promise<{ code: unknown; said: string }> {
  const options = ["--images-dir", imagesDir, "--data-dir", `${imagesDir}/data`, "--version", "1"];
  const env = { ...process.env, VIV_ACCEL: accelerator, VIV_CPU_MODEL: model };
  const command = [process.execPath, join(ROOT, "packages/node/src/bake.ts"), ...options];
  const [program = "", ...args] = [...within, ...command];
  return new Promise((resolve) =>
    execFile(program, args, { env }, (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, said: stdout + stderr }),
    ),
  );
}

test("the manifest names the model, and the guest has it, without virtualisation of its own", async () => {
  const { cpu, ...manifest } = await readManifest(join(imagesDir, "templates/base/1/small"));
  expect(manifest.accelerator).toBe(accelerator);
  const vendor = accelerator === "kvm" ? describeHostCpu().vendor : undefined;
  expect(cpu).toEqual({ model: LEVEL, vendor });
  const session = await create();
  const { stdout } = await session.exec({ command: ["cat", "/proc/cpuinfo"] });
  expect(stdout).toContain(`model name\t: ${LEVEL}`);
  const guest = describeHostCpu(stdout);
  const has = (flags: string) => flags.split(" ").filter((flag) => guest.flags.has(flag));
  expect(has("avx2 bmi2 fma sse4_2 aes avx512f vmx svm arch_perfmon perfctr_core")).toEqual(
    "avx2 bmi2 fma sse4_2 aes".split(" "),
  );
  await client.sessions.delete(session.id);
});

test("a session of a level continues after a pause and in a fork, with the right time and clocks that never go back", async () => {
  const session = await create();
  await session.exec({ command: sh("echo kept > file; sudo date -s '1 hour ago'") });
  const { uptime } = await clocksOf(session);
  await client.sessions.pause(session.id);
  const { stdout } = await session.exec({ command: ["cat", "file"] });
  expect(stdout).toBe("kept\n");
  const awake = await clocksOf(session);
  expect(awake.uptime).toBeGreaterThanOrEqual(uptime);
  expect(Math.abs(awake.behindMs)).toBeLessThan(600_000);
  const { children } = await client.sessions.fork(session.id);
  for (const child of [session.id, ...children]) {
    const forked = await clocksOf(client.session(child));
    expect(forked.uptime).toBeGreaterThanOrEqual(awake.uptime);
    expect(Math.abs(forked.behindMs)).toBeLessThan(600_000);
    await client.sessions.delete(child);
  }
});

async function clocksOf(session: Session): Promise<{ uptime: number; behindMs: number }> {
  const { stdout } = await session.exec({ command: sh("cut -d' ' -f1 /proc/uptime; date +%s") });
  const [uptime, seconds] = stdout.split("\n").map(Number);
  return { uptime: uptime as number, behindMs: Date.now() - (seconds as number) * 1000 };
}

test("a state that was saved with the CPU of another host is refused with both names, stays whole, and no QEMU starts", async () => {
  const control = suspendControl(own.facts);
  const [machine, snapshot] = [`${randomId()}-1`, `chk_${randomId()}`];
  try {
    await node.call("PUT", `/v1/machines/${machine}`, startSpec({ hostname: "source" }));
    await node.exec(machine, { argv: sh("echo whole > file") });
    const spec = { machine_id: machine, after: "hold" };
    expect(await node.call("PUT", `/v1/snapshots/${snapshot}`, spec)).toMatchObject({ status: 200 });
    await node.call("DELETE", `/v1/machines/${machine}`);
    const file = join(own.facts.dataDir, "pool/s", snapshot, "manifest.json");
    const whole = readFileSync(file, "utf8");
    expect(Manifest.parse(JSON.parse(whole)).cpu?.model).toBe(LEVEL);
    unshare(file);
    const elsewhere = { accelerator: "kvm", cpu: { model: "host", host: OTHER_CPU } };
    writeFileSync(file, JSON.stringify({ ...JSON.parse(whole), ...elsewhere }));

    const refused = await start(snapshot);
    expect(refused).toMatchObject({ status: 409, body: { code: "snapshot_unfit" } });
    const { message } = refused.body as { message: string };
    expect(message).toContain(OTHER_CPU);
    expect(message).toContain(describeHostCpu().name);
    expect(machineTraces(own.facts.dataDir)).toMatchObject({ processes: 0 });
    expect(await node.call("GET", `/v1/snapshots/${snapshot}`)).toMatchObject({ status: 200 });
    expect(NodeInfo.parse((await node.call("GET", "/v1/info")).body).damaged_snapshots).toEqual([]);

    writeFileSync(file, whole);
    expect(await start(snapshot)).toMatchObject({ status: 200 });
  } finally {
    await node.call("DELETE", `/v1/snapshots/${snapshot}`);
    control.resume();
  }
});

async function start(snapshot: string) {
  const machine = `/v1/machines/${randomId()}-1`;
  const answer = await node.call("PUT", machine, startSpec({ hostname: "again", snapshot_id: snapshot }));
  await node.call("DELETE", machine);
  return answer;
}

test.each([
  ["x86-64-v4", accelerator === "tcg", "provides x86-64-v3"],
  ["no-such-cpu", true, "unable to find CPU model"],
] as const)("a bake for %s, which is not to be had, is refused by that name", async (model, isTried, why) => {
  if (!isTried) return;
  const { code, said } = await bake(model);
  expect(code).not.toBe(0);
  expect(said).toContain(`VIV_CPU_MODEL is ${model}, which ${accelerator} does not have on this host`);
  expect(said).toContain(why);
  expect(existsSync(join(imagesDir, "templates/base/1/.small.tmp"))).toBe(false);
});

test("a bake switches no forwarding on and leaves no rules in the host's network", async () => {
  const forwarding = "/proc/sys/net/ipv4/ip_forward";
  const script = `echo 0 > ${forwarding}; "$@" || true; echo "after: $(cat ${forwarding}) $(nft list tables)."`;
  const { said } = await bake("no-such-cpu", [
    join(ROOT, "scripts/in-own-network"),
    "sh",
    "-c",
    script,
    "sh",
  ]);
  expect(said).toContain("unable to find CPU model");
  expect(said).toContain("after: 0 .");
});
