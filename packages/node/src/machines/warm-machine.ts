/** Makes and checks a warm machine, which is loaded ahead, up to the point where it needs a session. */
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import type { ProcessIdentity } from "@vivarium/kit/process-identity";
import { MIB } from "@vivarium/kit/sizes";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { AgentClient, assertGeneration } from "../guest/client.ts";
import { execInGuest } from "../guest/exec.ts";
import type { Slot } from "../host/slots.ts";
import type { Qmp } from "../qemu/qmp.ts";
import type { Loadable } from "../snapshots/manifest.ts";
import type { MachineDeps } from "./deps.ts";
import { resumeAs } from "./handshake.ts";
import { type JournalEntry, machineDir, writeEntry } from "./journal.ts";
import { launch, prepareFiles } from "./launch.ts";
import { clean } from "./stop.ts";

/** Disk space that is reserved while a machine is made. */
const DISK_BYTES = 64 * MIB;
const COMMAND_LIMIT_MS = 20_000;

/** Commands run in a machine from a baseline, so that the code of common first commands is translated and in memory. */
const WARM_UP = [["true"], ["sh", "-c", "true"], ["python3", "-c", "print(1)"], ["true"]];

/**
 * The source of a warm machine: a baseline (`isOurs`), whose guest may run ahead, or a state that a tenant saved. That
 * guest runs only under the tenant's network rules, so it is loaded and executes no instruction.
 */
export interface WarmSource extends Loadable {
  isVerified: boolean;
  isOurs: boolean;
}

export interface WarmMachine {
  /** Name of the machine's folder until it becomes a session's. */
  id: string;
  slot: Slot;
  process: ProcessIdentity;
  qmp: Qmp;
  agent: AgentClient;
  undo: UndoStack;
  template: string;
  size: string;
  hasRun: boolean;
}

export type WarmDeps = Pick<
  MachineDeps,
  "config" | "qemu" | "cgroups" | "sums" | "verifications" | "namespaces" | "gate" | "table" | "log"
>;

export async function makeWarm(deps: WarmDeps, source: WarmSource): Promise<WarmMachine> {
  const { config, namespaces, gate } = deps;
  const release = await gate.reserve(DISK_BYTES);
  const undo = new UndoStack();
  try {
    const id = `${randomId()}-1`;
    const slot = await namespaces.take("allow");
    const { template, size } = source.manifest;
    const spec = { template, size, hostname: "warm", no_sudo: false };
    // `starting`: a restarted daemon removes the machine.
    const entry: JournalEntry = { machine_id: id, spec, state: "starting", slot: slot.number };
    undo.push("slot and folder", () => clean(deps, entry));
    await writeEntry(config.dataDir, entry);
    const dir = machineDir(config.dataDir, id);
    const parent = await prepareFiles(deps, { dir, slot, parent: source });
    const { isVerified } = source;
    const { process, qmp } = await launch(deps, undo, { dir, slot, parent, isVerified });
    const agent = new AgentClient(path.join(dir, "run/agent.sock"));
    const warm = { id, slot, process, qmp, agent, undo, template, size, hasRun: source.isOurs };
    if (source.isOurs) await warmUp(warm);
    return warm;
  } catch (error) {
    await undo.unwind();
    throw error;
  } finally {
    release();
  }
}

/** Continues the guest under a placeholder identity, runs the first commands, and stops it again. */
async function warmUp(warm: WarmMachine): Promise<void> {
  await warm.qmp.execute("cont");
  const { health } = await resumeAs(warm.agent, { identity: { hostname: "warm", no_sudo: false } });
  assertGeneration(health);
  for (const argv of WARM_UP) await runToEnd(warm.agent, argv);
  await freezeAndStop(warm);
}

/** Checks that QEMU answers and, if the guest has run, that it still runs commands. */
export async function isUsable(warm: WarmMachine): Promise<boolean> {
  try {
    if (!warm.hasRun) await warm.qmp.execute("query-status");
    else await runAgain(warm);
    return true;
  } catch {
    return false;
  }
}

async function runAgain(warm: WarmMachine): Promise<void> {
  await warm.qmp.execute("cont");
  await warm.agent.command("/v1/thaw");
  await runToEnd(warm.agent, ["true"]);
  await freezeAndStop(warm);
}

/** Freezes the user's processes first, so that none runs between a later `cont` and the reseed. */
async function freezeAndStop(warm: WarmMachine): Promise<void> {
  await warm.agent.freeze();
  await warm.qmp.execute("stop");
}

async function runToEnd(agent: AgentClient, argv: string[]): Promise<void> {
  const frames = await execInGuest(agent, { argv, env: {}, timeout_ms: COMMAND_LIMIT_MS });
  for await (const _ of frames) {
    // Only the side effects matter: translated code, and pages in memory.
  }
}
