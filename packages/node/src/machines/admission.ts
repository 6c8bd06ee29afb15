import { freemem } from "node:os";

const MIB = 1024 * 1024;
/** Stays free for everybody else when machines are admitted. */
const RESERVE_BYTES = 512 * MIB;
/** What a machine takes while it starts. Those that start beside it have not taken theirs yet. */
const PER_START_BYTES = 128 * MIB;

interface Counts {
  machines: number;
  starting: number;
}

/** What holds memory that nobody needs yet. */
interface Spare {
  /** False when there is nothing to give up. */
  giveUpOne(): Promise<boolean>;
}

/**
 * Why the host has no room for one more machine; undefined where it has. The one that asks is counted in both numbers.
 * Nobody is refused for the memory of machines that wait: they go first, one by one, until there is enough.
 * `free`: bytes of memory that can be had without swapping.
 */
export async function makeRoom(
  count: () => Counts,
  { maxMachines }: { maxMachines: number },
  spare: Spare,
  free: () => number = freemem,
): Promise<string | undefined> {
  if (count().machines > maxMachines) return `this node runs its maximum of ${maxMachines} machines`;
  while (free() - count().starting * PER_START_BYTES < RESERVE_BYTES)
    if (!(await spare.giveUpOne())) return "this node is short of memory";
  return undefined;
}
