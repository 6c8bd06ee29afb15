/**
 * Floor F1: what a load costs without the service around it. QEMU is started with the baseline and the daemon's own
 * arguments, but by hand: no jail, no journal, no namespace made, no admission.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { constants, copyFile, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { AgentClient } from "../../packages/node/src/guest/client.ts";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { run } from "../../packages/node/src/host/run.ts";
import { JAIL_PATHS, loadArguments, TAP_NAME } from "../../packages/node/src/qemu/arguments.ts";
import { loadDeviceState, Qmp } from "../../packages/node/src/qemu/qmp.ts";
import { type Loadable, shapeOf } from "../../packages/node/src/snapshots/manifest.ts";
import { repeated, timed } from "./samples.ts";

const START_LIMIT_MS = 30_000;
const NETNS = `viv-bench-${process.pid}`;

export interface LoadTimes {
  /** Process start to the agent's first answer: F1. */
  firstAnswerMs: number;
  /** The same, plus reseed and the first exec of `true`. */
  firstExecMs: number;
  /** Warm round trips of the channel, with nothing run in the guest: what every call pays beside its own work. */
  channelMs: number[];
}

const CHANNEL_ROUNDS = 10;

export async function prepareTap(): Promise<void> {
  await run("ip", ["netns", "add", NETNS]);
  await run("ip", ["-n", NETNS, "tuntap", "add", TAP_NAME, "mode", "tap"]);
  await run("ip", ["-n", NETNS, "link", "set", TAP_NAME, "up"]);
}

export async function removeTap(): Promise<void> {
  await run("ip", ["netns", "del", NETNS]).catch(() => {});
}

export async function loadByHand(baseline: Loadable, poolDir: string): Promise<LoadTimes> {
  const dir = await mkdtemp(join(poolDir, "bench-"));
  const disk = join(dir, "disk.qcow2");
  await copyFile(join(baseline.dir, "disk.qcow2"), disk, constants.COPYFILE_FICLONE);
  const startedAt = performance.now();
  const qemu = spawn(
    "nsenter",
    [`--net=/run/netns/${NETNS}`, "qemu-system-x86_64", ...hostArguments(baseline, dir, disk)],
    { stdio: "ignore" },
  );
  const ended = new Promise((resolve) => qemu.once("exit", resolve));
  const agent = new AgentClient(join(dir, "agent.sock"));
  try {
    const qmp = await Qmp.connect(join(dir, "qmp.sock"), {
      limitMs: START_LIMIT_MS,
      alive: () => qemu.exitCode === null,
    });
    await loadDeviceState(qmp, join(baseline.dir, "state"));
    await qmp.execute("cont");
    await agent.health();
    const firstAnswerMs = performance.now() - startedAt;
    await agent.resumed({
      entropy: randomBytes(64).toString("base64"),
      wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
      identity: { hostname: "bench", machine_id: randomBytes(16).toString("hex"), no_sudo: false },
    });
    const frames = await execInGuest(agent, { argv: ["true"], env: {}, timeout_ms: START_LIMIT_MS });
    for await (const _ of frames);
    const firstExecMs = performance.now() - startedAt;
    return {
      firstAnswerMs,
      firstExecMs,
      channelMs: await repeated(CHANNEL_ROUNDS, () => timed(() => agent.health())),
    };
  } finally {
    agent.close();
    qemu.kill("SIGKILL");
    await ended;
    await rm(dir, { recursive: true, force: true });
  }
}

/** The daemon's arguments with the files where they lie on the host instead of in the jail. */
function hostArguments(baseline: Loadable, dir: string, disk: string): string[] {
  const places: Record<string, string> = {
    [JAIL_PATHS.memory]: join(baseline.dir, "mem"),
    [JAIL_PATHS.base]: join(baseline.dir, "base.raw"),
    [JAIL_PATHS.layer]: join(baseline.dir, "layer.qcow2"),
    [JAIL_PATHS.disk]: disk,
    [JAIL_PATHS.qmp]: join(dir, "qmp.sock"),
    [JAIL_PATHS.agent]: join(dir, "agent.sock"),
  };
  const inPlace = (argument: string) =>
    Object.entries(places).reduce(
      (text, [from, to]) => text.replaceAll(new RegExp(`(?<=[=":])${from}(?=[",]|$)`, "g"), to),
      argument,
    );
  return loadArguments(shapeOf(baseline.manifest)).map(inPlace);
}
