/** Handshake with the agent of a guest that continues, and the thaw of its user's processes after a capture. */
import { createHash, randomBytes } from "node:crypto";
import type { GuestAuthority, GuestSettings, ResumedAck } from "@vivarium/contract/guest";
import { endsWithin, sleep } from "@vivarium/kit/clock";
import { type AgentClient, assertGeneration } from "../guest/client.ts";
import { AgentSilence, NodeError } from "../node-error.ts";
import { mountVolume } from "./attach-volume.ts";
import type { Machine } from "./machine.ts";

/** How long to wait for the report that a machine ended. */
const ENDS_WITHIN_MS = 500;

interface Introduction {
  isUnfrozen?: boolean;
  /** The operator's settings. A machine that continues as the one that was saved keeps those that it has. */
  settings?: GuestSettings;
}

/**
 * Sends the guest a new seed, the time and, unless the machine continues as the one that was saved, its own identity.
 * User processes run only after that, and not at all if the machine is to be held. Fails for a guest that does not
 * confirm, so that the machine is not used. An agent of an older version cannot keep the processes frozen: they run
 * until the machine is stopped. The processes of a machine with a volume stay frozen until it is mounted.
 */
export async function handshake(
  machine: Machine,
  { isUnfrozen = false, settings }: Introduction = {},
): Promise<void> {
  const { hostname, no_sudo, resume, hold, volume, ca = null } = machine.spec;
  const identity = resume ? undefined : { hostname, no_sudo, settings };
  const stayFrozen = hold || volume !== undefined;
  const introduced = resumeAs(machine.agent, { identity, stayFrozen, ca }).then((ack) => {
    assertGeneration(ack.health);
    // A guest that was saved may have made its own files unwritable: it wakes, and its programs refuse the authority.
    if (ca && !(resume && ack.ca_trusted === false)) assertTrusted(ack);
  });
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

/** Fails for an agent that does not know the field of the authority, so that the guest would refuse its Connections. */
function assertTrusted({ ca_trusted }: ResumedAck): void {
  if (ca_trusted) return;
  throw new Error(
    "its saved state is of an older version of Vivarium and cannot have Connections. " +
      "A session without Connections starts from it; a baseline is baked again by ./setup",
  );
}

/** Whether a tenant's guest is at fault: not that of a baseline, and not if its QEMU was killed from outside. */
async function isOfItsGuest(machine: Machine): Promise<boolean> {
  if (machine.spec.snapshot_id === undefined) return false;
  await endsWithin(ENDS_WITHIN_MS, machine.qmp.closed);
  return machine.isRunning || machine.wasEndedByGuest;
}

interface Resumption {
  /** Absent if the machine continues as the one that it was. */
  identity?: { hostname: string; no_sudo: boolean; settings?: GuestSettings };
  stayFrozen?: boolean;
  /** The authority that the guest trusts from now on, null for none. Absent: as before. */
  ca?: GuestAuthority | null;
}

/**
 * Reseeds the guest and sets clock, identity and authority. The agent then thaws its processes, unless they stay frozen.
 */
export async function resumeAs(
  agent: AgentClient,
  { identity, stayFrozen, ca }: Resumption = {},
): Promise<ResumedAck> {
  const ack = await agent.resumed({
    entropy: randomBytes(64).toString("base64"),
    wall_clock_ns: String(BigInt(Date.now()) * 1_000_000n),
    ...(identity && { identity: { ...identity, machine_id: machineIdOf(identity.hostname) } }),
    ...(stayFrozen && { stay_frozen: true }),
    ...(ca !== undefined && { ca }),
  });
  if (!ack.reseeded) throw new Error("the agent did not confirm the reseed");
  return ack;
}

/** A machine-id that all machines of a session share, and no other session has. */
function machineIdOf(hostname: string): string {
  return createHash("sha256").update(`machine-id\0${hostname}`).digest("hex").slice(0, 32);
}

const THAW_RETRY_MS = 1_000;

/**
 * Continues a guest that was stopped or frozen for a capture, and sets its clock, which stopped meanwhile. An agent
 * that does not answer is asked again as long as the machine lives, because its user's processes are frozen until
 * then.
 */
export async function thawAndContinue(machine: Machine): Promise<void> {
  await machine.qmp.execute("cont");
  await thaw(machine).catch(() => void thawLater(machine));
}

/** The volume is there before the processes run. */
async function thaw(machine: Machine): Promise<void> {
  const hasVolume = machine.spec.volume !== undefined;
  await resumeAs(machine.agent, { stayFrozen: hasVolume });
  if (hasVolume) await mountVolume(machine);
}

/** Repeats the thaw, queued with captures, so that it does not thaw processes that a later capture froze. */
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
  return await thaw(machine).then(
    () => false,
    () => true,
  );
}
