/**
 * Loads a machine without the service: QEMU runs a snapshot with the daemon's own arguments, but without jail, journal
 * and admission, and the guest gets only the caller's requests.
 */
import { spawn } from "node:child_process";
import { constants, copyFile, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { AgentClient } from "../../packages/node/src/guest/client.ts";
import { run } from "../../packages/node/src/host/run.ts";
import { JAIL_PATHS, loadArguments, TAP_NAME } from "../../packages/node/src/qemu/arguments.ts";
import { loadDeviceState, Qmp } from "../../packages/node/src/qemu/qmp.ts";
import { devicesOf, type Loadable, shapeOf } from "../../packages/node/src/snapshots/manifest.ts";

const START_LIMIT_MS = 30_000 * SLOWNESS;

export interface MachineByHand {
  dir: string;
  pid: number;
  qmp: Qmp;
  agent: AgentClient;
  /** Loads the device state and lets the guest run. */
  go(): Promise<void>;
  end(): Promise<void>;
}

/** A network namespace with the tap device that the arguments name; only one machine at a time may use it. */
export class TapNamespace {
  readonly name: string;

  private constructor(name: string) {
    this.name = name;
  }

  static async make(label: string): Promise<TapNamespace> {
    const made = new TapNamespace(`viv-${label}-${process.pid}`);
    await run("ip", ["netns", "add", made.name]);
    await run("ip", ["-n", made.name, "tuntap", "add", TAP_NAME, "mode", "tap"]);
    await run("ip", ["-n", made.name, "link", "set", TAP_NAME, "up"]);
    return made;
  }

  async remove(): Promise<void> {
    await run("ip", ["netns", "del", this.name]).catch(() => {});
  }
}

/** Starts QEMU; resolves when it waits for the device state. */
export async function startByHand(
  source: Loadable,
  poolDir: string,
  network: TapNamespace,
): Promise<MachineByHand> {
  const dir = await mkdtemp(join(poolDir, "by-hand-"));
  const disk = join(dir, "disk.qcow2");
  await copyFile(join(source.dir, "disk.qcow2"), disk, constants.COPYFILE_FICLONE);
  const qemu = spawn(
    "nsenter",
    [`--net=/run/netns/${network.name}`, "qemu-system-x86_64", ...hostArguments(source, dir, disk)],
    { stdio: "ignore" },
  );
  const ended = new Promise((resolve) => qemu.once("exit", resolve));
  const agent = new AgentClient(join(dir, "agent.sock"));
  const end = async () => {
    agent.close();
    qemu.kill("SIGKILL");
    await ended;
    await rm(dir, { recursive: true, force: true });
  };
  try {
    const qmp = await Qmp.connect(join(dir, "qmp.sock"), {
      limitMs: START_LIMIT_MS,
      alive: () => qemu.exitCode === null,
    });
    const go = async () => {
      await loadDeviceState(qmp, join(source.dir, "state"));
      await qmp.execute("cont");
    };
    return { dir, pid: qemu.pid as number, qmp, agent, go, end };
  } catch (error) {
    await end();
    throw error;
  }
}

/** The daemon's arguments, with paths in the jail replaced by paths of this host. */
function hostArguments({ dir: source, manifest }: Loadable, dir: string, disk: string): string[] {
  const places: Record<string, string> = {
    [JAIL_PATHS.memory]: join(source, "mem"),
    [JAIL_PATHS.base]: join(source, "base.raw"),
    [JAIL_PATHS.layer]: join(source, "layer.qcow2"),
    [JAIL_PATHS.disk]: disk,
    [JAIL_PATHS.qmp]: join(dir, "qmp.sock"),
    [JAIL_PATHS.agent]: join(dir, "agent.sock"),
  };
  const inPlace = (argument: string) =>
    Object.entries(places).reduce(
      (text, [from, to]) => text.replaceAll(new RegExp(`(?<=[=":])${from}(?=[",]|$)`, "g"), to),
      argument,
    );
  return loadArguments(shapeOf(manifest), devicesOf(manifest)).map(inPlace);
}
