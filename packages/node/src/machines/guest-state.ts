/** Stops and continues a machine's guest, and records in the journal which of both it is. */
import { createHash, randomBytes } from "node:crypto";
import type { AgentHealth } from "@vivarium/contract/guest";
import { endsWithin, sleep } from "@vivarium/kit/clock";
import type { NodeConfig } from "../config.ts";
import { type AgentClient, assertGeneration } from "../guest/client.ts";
import { AgentSilence, NodeError } from "../node-error.ts";
import { type JournalEntry, writeEntry } from "./journal.ts";
import type { Machine } from "./machine.ts";

/** How long the end of a machine may take to be noticed. */
const ENDS_WITHIN_MS = 500;

/**
 * Sends the guest a new seed, the time and, unless the machine continues as the one that was saved, its own identity.
 * User processes run only after that, and not at all if the machine is to be stopped. Fails for a guest that does not
 * confirm, so that the machine is not used.
 *
 * An agent of an older version does not know how to stay frozen: it thaws its processes until its machine is stopped.
 */
export async function handshake(machine: Machine, { isUnfrozen = false } = {}): Promise<void> {
  const { hostname, no_sudo, resume, hold } = machine.spec;
  const identity = resume ? undefined : { hostname, no_sudo };
  const introduced = resumeAs(machine.agent, { identity, stayFrozen: hold }).then(assertGeneration);
  await introduced.catch(async (cause: Error) => {
    if (machine.isOutOfSpace)
      throw new NodeError("disk_pressure", "the machine waits for free disk itself", { cause });
    const isOfGuest = await isOfItsGuest(machine);
    // A busy host alone may delay an agent that answered when its state was saved.
    const mayBeOfHost = cause instanceof AgentSilence && !isUnfrozen && !machine.wasEndedByGuest;
    if (!isOfGuest || mayBeOfHost) throw cause;
    throw new NodeError("guest_unfit", `it does not confirm that it goes on: ${cause.message}`, { cause });
  });
}

/** A baseline is ours, and so are its faults. If the process was killed, the guest is not the cause. */
async function isOfItsGuest(machine: Machine): Promise<boolean> {
  if (machine.spec.snapshot_id === undefined) return false;
  await endsWithin(ENDS_WITHIN_MS, machine.qmp.closed);
  return machine.isRunning || machine.wasEndedByGuest;
}

export async function resumeAs(
  agent: AgentClient,
  { identity, stayFrozen }: { identity?: { hostname: string; no_sudo: boolean }; stayFrozen?: boolean } = {},
): Promise<AgentHealth> {
  const ack = await agent.resumed({
    entropy: randomBytes(64).toString("base64"),
    wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
    ...(identity && { identity: { ...identity, machine_id: machineIdOf(identity.hostname) } }),
    ...(stayFrozen && { stay_frozen: true }),
  });
  if (!ack.reseeded) throw new Error("the agent did not confirm the reseed");
  return ack.health;
}

/** The same for every machine of a session, and different from any other session's. */
function machineIdOf(hostname: string): string {
  return createHash("sha256").update(`machine-id\0${hostname}`).digest("hex").slice(0, 32);
}

const THAW_RETRY_MS = 1_000;

/**
 * Continues a guest that was stopped or frozen for a capture, and sets its clock, which was stopped with it. An agent
 * that does not answer is asked again for as long as the machine lives, because its user's processes are frozen until
 * it thaws them.
 */
export async function thawAndContinue(machine: Machine): Promise<void> {
  await machine.qmp.execute("cont");
  await resumeAs(machine.agent).catch(() => void thawLater(machine));
}

/** Queued behind captures: a process that one capture froze must not be thawed on behalf of an earlier one. */
async function thawLater(machine: Machine): Promise<void> {
  if (machine.isThawing) return;
  machine.isThawing = true;
  while (machine.isThawing) {
    await sleep(THAW_RETRY_MS);
    await machine.queue.run(async () => {
      machine.isThawing = machine.isRunning && !machine.isHeld && (await isStillFrozen(machine));
    });
  }
}

async function isStillFrozen(machine: Machine): Promise<boolean> {
  return await resumeAs(machine.agent).then(
    () => false,
    () => true,
  );
}

export const markHeld = (config: NodeConfig, machine: Machine) =>
  writeChange(config, machine, { state: "held", holding_for: undefined });

export const markRunning = (config: NodeConfig, machine: Machine) =>
  writeChange(config, machine, { state: "running", holding_for: undefined });

export async function writeChange(
  { dataDir }: NodeConfig,
  machine: Machine,
  change: Partial<JournalEntry>,
): Promise<void> {
  const entry = { ...machine.entry, ...change };
  await writeEntry(dataDir, entry);
  machine.entry = entry;
}
