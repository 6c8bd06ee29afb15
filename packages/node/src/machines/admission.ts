import { freemem } from "node:os";
import { MIB } from "@vivarium/kit/sizes";
import { NodeError } from "../node-error.ts";

/** Stays free when machines are admitted, for everything else on the host. */
const RESERVE_BYTES = 512 * MIB;
/** Memory that a start takes. Machines that are starting have not taken theirs yet. */
const PER_START_BYTES = 128 * MIB;

/** Memory in use by machines that no session needs yet. */
interface Spare {
  /** False if there is nothing to give up. */
  giveUpOne(): Promise<boolean>;
}

/** Why one more machine is too many, or undefined. The machine that asks is counted in `machines`. */
export function excess(machines: number, maxMachines: number): string | undefined {
  return machines > maxMachines ? `this node runs its maximum of ${maxMachines} machines` : undefined;
}

/** The two ways to get a machine. */
interface Ways<M> {
  /** A warm machine, which has its memory already. Undefined if none is ready, or if it failed to start. */
  ready(): Promise<M | undefined>;
  /** Why there is no memory to load a machine, or undefined. */
  lack(): Promise<string | undefined>;
  load(): Promise<M>;
}

/** Tries a warm machine first: it needs no memory, and must not be ended to make space for the start that wants it. */
export async function readyOrLoaded<M>({ ready, lack, load }: Ways<M>): Promise<M> {
  const machine = await ready();
  if (machine !== undefined) return machine;
  const reason = await lack();
  if (reason !== undefined) throw new NodeError("no_capacity", reason);
  return await load();
}

/**
 * Why the host has no memory for one more machine, or undefined. The machine that asks is counted in `starting`. Warm
 * machines are ended one by one until there is enough. `free`: bytes of memory available without swapping.
 */
export async function freeMemory(
  starting: () => number,
  spare: Spare,
  free: () => number = freemem,
): Promise<string | undefined> {
  while (free() - starting() * PER_START_BYTES < RESERVE_BYTES)
    if (!(await spare.giveUpOne())) return "this node is short of memory";
  return undefined;
}
