import { freemem } from "node:os";

const MIB = 1024 * 1024;
/** Stays free for everybody else when machines are admitted. */
const RESERVE_BYTES = 512 * MIB;
/** What a machine takes while it starts. Those that start beside it have not taken theirs yet. */
const PER_START_BYTES = 128 * MIB;

/**
 * Why the host has no room for one more machine; undefined where it has. The one that asks is counted in both numbers.
 * `free`: bytes of memory that can be had without swapping.
 */
export function lackOfRoom(
  { machines, starting }: { machines: number; starting: number },
  { maxMachines }: { maxMachines: number },
  free = freemem(),
): string | undefined {
  if (machines > maxMachines) return `this node runs its maximum of ${maxMachines} machines`;
  if (free - starting * PER_START_BYTES < RESERVE_BYTES) return "this node is short of memory";
  return undefined;
}
