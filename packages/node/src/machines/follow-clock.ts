/**
 * Sets the wall clocks of running guests when the host's has jumped: the host was suspended, which its guests' clocks may
 * have missed, or its own clock was set. A guest's clocks that cannot be set, which count from its boot, are left
 * as they are.
 */
import { repeatAfter } from "@vivarium/kit/clock";
import type { MachineDeps } from "./deps.ts";
import { resumeAs } from "./handshake.ts";
import type { Machine } from "./machine.ts";

/** The timer does not count a suspend, so clocks are set this long after the host wakes at most. */
const LOOK_MS = 5_000;
/** Smaller differences are left, and add up: a host's clock that is being corrected is slewed, as its guests' are. */
const SHORTEST_MS = 1_000;

type ClockDeps = { table: Pick<MachineDeps["table"], "running"> } & Pick<MachineDeps, "log">;

export async function followClock(
  deps: ClockDeps,
  until: AbortSignal,
  { jumpedMs = jumpMeter(), lookMs = LOOK_MS } = {},
): Promise<void> {
  // Machines whose clock is not set yet: their agent did not answer, as on a host that is busy after it woke.
  let late: Machine[] = [];
  await repeatAfter(lookMs, until, async () => {
    const { running } = deps.table;
    const ms = jumpedMs();
    if (ms !== 0) {
      deps.log.warn(
        { ms },
        "the host's clock jumped, as after a suspend; the clocks of running machines are set",
      );
      late = [...running.values()];
    }
    const there = late.filter((machine) => running.get(machine.id) === machine);
    const isSet = await Promise.all(there.map((machine) => setClock(deps, machine)));
    late = there.filter((_, index) => !isSet[index]);
  });
}

/**
 * Each call returns how far the wall clock has jumped since the call before, back or forth; the first one, since the
 * meter was made. `runMs` can be neither set nor does it count a suspend.
 */
export function jumpMeter({ wallMs = () => Date.now(), runMs = () => performance.now() } = {}): () => number {
  let last = wallMs() - runMs();
  return () => {
    const now = wallMs() - runMs();
    const ms = Math.round(now - last);
    if (Math.abs(ms) < SHORTEST_MS) return 0;
    last = now;
    return ms;
  };
}

/**
 * Sets the wall clock of a guest that runs; one that is stopped gets the time when it continues. Never rejects: false if
 * the guest's agent did not take the time. Queued with captures, because the same call thaws what a capture has frozen.
 */
export async function setClock({ log }: Pick<ClockDeps, "log">, machine: Machine): Promise<boolean> {
  try {
    await machine.queue.run(async () => {
      if (machine.isRunning && !machine.isHeld && !machine.isOutOfSpace) await resumeAs(machine.agent);
    });
    return true;
  } catch (err) {
    log.warn({ machine: machine.id, err }, "the clock of a machine was not set");
    return false;
  }
}
