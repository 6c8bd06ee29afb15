/** Lets a machine's guest run, or makes it stand still, and keeps the journal's word for it. */
import { createHash, randomBytes } from "node:crypto";
import { sleep } from "@vivarium/kit/clock";
import type { NodeConfig } from "../config.ts";
import { type AgentClient, assertGeneration } from "../guest/client.ts";
import { writeEntry } from "./journal.ts";
import type { Machine } from "./machine.ts";

/**
 * Reseed and clock, and unless the machine goes on as the one that was saved, an identity of its own; user processes
 * run only after that. A machine that does not confirm is not handed out (architecture.md invariant 7).
 */
export async function introduce(machine: Machine): Promise<void> {
  const { hostname, no_sudo, resume } = machine.spec;
  await resumeAs(machine.agent, resume ? undefined : { hostname, no_sudo });
}

export async function resumeAs(
  agent: AgentClient,
  identity?: { hostname: string; no_sudo: boolean },
): Promise<void> {
  const ack = await agent.resumed({
    entropy: randomBytes(64).toString("base64"),
    wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
    ...(identity && { identity: { ...identity, machine_id: machineIdOf(identity.hostname) } }),
  });
  if (!ack.reseeded) throw new Error("the agent did not confirm the reseed");
  assertGeneration(ack.health);
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
