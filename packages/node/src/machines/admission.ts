/** Decides whether the host has capacity for one more machine, and whether a warm machine is used for it. */
import { freemem } from "node:os";
import { MIB } from "@vivarium/kit/sizes";
import { NodeError } from "../node-error.ts";

/** Memory that admission leaves free for everything else on the host. */
const RESERVE_BYTES = 512 * MIB;
/** Memory counted for each machine that is starting, which has not allocated its own yet. */
const PER_START_BYTES = 128 * MIB;

/** Warm machines, which can be ended to free their memory. */
interface Spare {
  /** Ends one of them. False if none is left. */
  giveUpOne(): Promise<boolean>;
}

/** Why one more machine is too many, or undefined. `machines` includes the one that is to start. */
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
 * Ends warm machines one by one until there is memory for one more machine. Returns why there is none, or undefined.
 * `starting` includes the machine that is to start. `free`: bytes of memory available without swapping.
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
