/** Lets a machine's guest run, or makes it stand still, and keeps the journal's word for it. */
import { createHash, randomBytes } from "node:crypto";
import type { AgentHealth } from "@vivarium/contract/guest";
import { sleep } from "@vivarium/kit/clock";
import type { NodeConfig } from "../config.ts";
import { type AgentClient, assertGeneration } from "../guest/client.ts";
import { AgentSilence, NodeError } from "../node-error.ts";
import { writeEntry } from "./journal.ts";
import type { Machine } from "./machine.ts";

/** How long a machine that ends may take to be seen ending. */
const ENDS_WITHIN_MS = 500;

/**
 * Reseed and clock, and unless the machine goes on as the one that was saved, an identity of its own; user processes
 * run only after that, and of one that is to be held none does. A machine that does not confirm is not handed out
 * (architecture.md invariant 7). An agent that was saved before it knew to stay frozen thaws them for the moment until
 * its machine is stopped.
 */
export async function introduce(machine: Machine, { isUnfrozen = false } = {}): Promise<void> {
  const { hostname, no_sudo, resume, hold } = machine.spec;
  const identity = resume ? undefined : { hostname, no_sudo };
  const introduced = resumeAs(machine.agent, { identity, stayFrozen: hold }).then(assertGeneration);
  await introduced.catch(async (cause: Error) => {
    if (machine.isOutOfSpace)
      throw new NodeError("disk_pressure", "the machine waits for free disk itself", { cause });
    const isOfGuest = await isOfItsGuest(machine);
    // An agent that answered when its state was saved may be held up by a busy host alone.
    const mayBeOfHost = cause instanceof AgentSilence && !isUnfrozen && !machine.wasEndedByGuest;
    throw isOfGuest && !mayBeOfHost ? unfit(cause) : cause;
  });
}

/** A baseline is ours, and so is what is wrong with it. A process that was killed says nothing about its guest. */
async function isOfItsGuest(machine: Machine): Promise<boolean> {
  if (machine.spec.snapshot_id === undefined) return false;
  await Promise.race([machine.qmp.closed, sleep(ENDS_WITHIN_MS)]);
  return machine.isRunning || machine.wasEndedByGuest;
}

function unfit(cause: Error): NodeError {
  return new NodeError("guest_unfit", `it does not confirm that it goes on: ${cause.message}`, {
    cause,
  });
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

/** The same for every machine of a session, and no other's. */
function machineIdOf(hostname: string): string {
  return createHash("sha256").update(`machine-id\0${hostname}`).digest("hex").slice(0, 32);
}

const THAW_RETRY_MS = 1_000;

/**
 * A guest that was stopped or frozen for a capture goes on as if nothing had been: at the right time of day, since its
 * clock stood still with it. An agent that does not answer is asked again for as long as the machine lives: until it
 * thaws, its user's processes stand still.
 */
export async function letGo(machine: Machine): Promise<void> {
  await machine.qmp.execute("cont");
  await resumeAs(machine.agent).catch(() => void thawLater(machine));
}

/** In turn with captures, so that what one of them freezes is not thawed by what another one has left. */
async function thawLater(machine: Machine): Promise<void> {
  if (machine.isThawing) return;
  machine.isThawing = true;
  while (machine.isThawing) {
    await sleep(THAW_RETRY_MS);
    await machine.exclusive(async () => {
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

export async function markHeld(config: NodeConfig, machine: Machine): Promise<void> {
  await writeState(config, machine, "held");
}

export async function markRunning(config: NodeConfig, machine: Machine): Promise<void> {
  await writeState(config, machine, "running");
}

async function writeState(config: NodeConfig, machine: Machine, state: "held" | "running"): Promise<void> {
  const entry = { ...machine.entry, state, holding_for: undefined };
  await writeEntry(config.dataDir, entry);
  machine.entry = entry;
}
