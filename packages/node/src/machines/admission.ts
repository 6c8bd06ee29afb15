import { freemem } from "node:os";
import { NodeError } from "../node-error.ts";

const MIB = 1024 * 1024;
/** Stays free for everybody else when machines are admitted. */
const RESERVE_BYTES = 512 * MIB;
/** What a machine takes while it starts. Those that start beside it have not taken theirs yet. */
const PER_START_BYTES = 128 * MIB;

/** What holds memory that nobody needs yet. */
interface Spare {
  /** False when there is nothing to give up. */
  giveUpOne(): Promise<boolean>;
}

/** Why one more machine is too many, the one that asks counted; undefined where it is not. */
export function excess(machines: number, maxMachines: number): string | undefined {
  return machines > maxMachines ? `this node runs its maximum of ${maxMachines} machines` : undefined;
}

/** The ways in which a machine can be had. */
interface Ways<M> {
  /** One that waits, with its own memory; undefined where none does, or none comes to life. */
  ready(): Promise<M | undefined>;
  /** Why there is no memory for one that is loaded. */
  lack(): Promise<string | undefined>;
  load(): Promise<M>;
}

/** What waits is asked first: it is had however short memory is, and is not to be given up for the one that asks for it. */
export async function readyOrLoaded<M>({ ready, lack, load }: Ways<M>): Promise<M> {
  const machine = await ready();
  if (machine !== undefined) return machine;
  const reason = await lack();
  if (reason !== undefined) throw new NodeError("no_capacity", reason);
  return await load();
}

/**
 * Why the host has no memory for one more machine; undefined where it has. The one that asks is counted in `starting`.
 * Nobody is refused for the memory of machines that wait: they go first, one by one, until there is enough.
 * `free`: bytes of memory that can be had without swapping.
 */
export async function makeRoom(
  starting: () => number,
  spare: Spare,
  free: () => number = freemem,
): Promise<string | undefined> {
  while (free() - starting() * PER_START_BYTES < RESERVE_BYTES)
    if (!(await spare.giveUpOne())) return "this node is short of memory";
  return undefined;
}
