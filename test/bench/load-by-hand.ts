/** Floors F1 and F2: the cost of a load without the service, from the start of a process and from a waiting process. */

import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { resumeAs } from "../../packages/node/src/machines/handshake.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { startByHand, type TapNamespace } from "../support/machine-by-hand.ts";
import { repeated, timed } from "./samples.ts";

const CHANNEL_ROUNDS = 10;
const EXEC_LIMIT_MS = 30_000;

export interface LoadTimes {
  /** Process start to the agent's first answer: F1. */
  firstAnswerMs: number;
  /** F1, plus reseed and the first exec of `true`. */
  firstExecMs: number;
  /** From the waiting process to the first exec: F2. */
  fromWaitingMs: number;
  /** Warm round trips of the channel, without a command: the cost that every call has besides its own work. */
  channelMs: number[];
}

export async function loadByHand(
  source: Loadable,
  poolDir: string,
  network: TapNamespace,
): Promise<LoadTimes> {
  const startedAt = performance.now();
  const machine = await startByHand(source, poolDir, network);
  const waitedAt = performance.now();
  const { agent } = machine;
  try {
    await machine.go();
    await agent.health();
    const firstAnswerMs = performance.now() - startedAt;
    await resumeAs(agent, { identity: { hostname: "bench", no_sudo: false } });
    const frames = await execInGuest(agent, { argv: ["true"], env: {}, timeout_ms: EXEC_LIMIT_MS });
    for await (const _ of frames);
    return {
      firstAnswerMs,
      firstExecMs: performance.now() - startedAt,
      fromWaitingMs: performance.now() - waitedAt,
      channelMs: await repeated(CHANNEL_ROUNDS, () => timed(() => agent.health())),
    };
  } finally {
    await machine.end();
  }
}
