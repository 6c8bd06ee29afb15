/** Waits until this host has memory for a machine of a build: no other machine may be ended for want of it. */
import { freemem } from "node:os";
import { sleep } from "@vivarium/kit/clock";
import { MIB } from "@vivarium/kit/sizes";
import { NodeError } from "../node-error.ts";

/** Memory that is left for everything else on the host. */
const RESERVE_BYTES = 512 * MIB;
const LOOK_MS = 2_000;
const LIMIT_MS = 10 * 60_000;

interface Patience {
  /** Bytes of memory available without swapping. */
  free?: () => number;
  lookMs?: number;
  limitMs?: number;
}

/** `giveUpOne` ends a warm machine, which are there for speed alone; false if none is left. */
export async function waitForMemory(
  megabytes: number,
  giveUpOne: () => Promise<boolean>,
  signal: AbortSignal,
  { free = freemem, lookMs = LOOK_MS, limitMs = LIMIT_MS }: Patience = {},
): Promise<void> {
  const began = performance.now();
  while (free() < megabytes * MIB + RESERVE_BYTES) {
    signal.throwIfAborted();
    if (await giveUpOne()) continue;
    if (performance.now() - began > limitMs)
      throw new NodeError("no_capacity", "this node is short of memory; try again later");
    await sleep(lookMs, signal);
  }
}
