/** Whether the host goes down, and pausing all sessions before it does. A stop for an update leaves machines running. */
import { existsSync } from "node:fs";
import { PAUSE_ALL_LIMIT_MS, PAUSE_ALL_SIGNAL } from "@vivarium/contract/supervision";
import { sleep } from "@vivarium/kit/clock";
import { runHostCommand } from "@vivarium/kit/host-command";
import type { Client } from "@vivarium/sdk";
import { waitForHealth } from "../service/wait-for-health.ts";
import type { Terminal } from "../terminal.ts";
import type { Keeper } from "./keeper.ts";
import type { StopManner } from "./running.ts";

/** The parts of the host that are asked; tests have others. */
interface ShutdownHost {
  /** Exists while systemd is the init process. */
  systemdDir: string;
  run: typeof runHostCommand;
  /** Before systemd is asked again. */
  pauseMs: number;
}

const THIS_HOST: ShutdownHost = { systemdDir: "/run/systemd/system", run: runHostCommand, pauseMs: 1_000 };

/** systemd answers late on a host that stops everything at once, so it is asked several times. */
const ASKS = 6;
const ASK_LIMIT_MS = 5_000;
/** The words of systemctl where systemd has not answered. */
const NO_ANSWER = ["", "unknown"];
const NO_PROGRAM = 127;

/** Control takes the signal once it serves; it may be about to. */
const SERVES_LIMIT_MS = 30_000;
/** Time in which control ends after the pauses. */
const CLOSE_LIMIT_MS = 60_000;

const PAUSE_ALL: StopManner = {
  signal: PAUSE_ALL_SIGNAL,
  limitMs: PAUSE_ALL_LIMIT_MS + CLOSE_LIMIT_MS,
  keepsInput: true,
};

/** Longest time from the signal to the end of control: how long a unit's stop may take, without the other processes. */
export const PAUSE_AND_CLOSE_LIMIT_MS =
  ASKS * (ASK_LIMIT_MS + THIS_HOST.pauseMs) + SERVES_LIMIT_MS + PAUSE_ALL.limitMs;

/** Whether a stop by this signal is for the end of the host: it was asked for, or systemd is shutting the host down. */
export async function isForHostShutdown(signal: string, host = THIS_HOST): Promise<boolean> {
  if (signal === PAUSE_ALL_SIGNAL) return true;
  if (signal !== "SIGTERM" || !existsSync(host.systemdDir)) return false;
  for (let asked = 1; asked <= ASKS; asked++) {
    const { code, stdout } = await host.run("systemctl", ["is-system-running"], { timeoutMs: ASK_LIMIT_MS });
    const state = stdout.trim();
    if (!NO_ANSWER.includes(state) || code === NO_PROGRAM) return state === "stopping";
    if (asked < ASKS) await sleep(host.pauseMs);
  }
  return false;
}

/** Resolves once control has paused what it can and has ended, or when it is asked again to stop. */
export async function pauseSessions(
  { control, client, terminal }: { control: Keeper; client: Client; terminal: Terminal },
  askedAgain: Promise<unknown>,
): Promise<void> {
  const again = new AbortController();
  void askedAgain.then(() => again.abort());
  const health = await waitForHealth(client, { limitMs: SERVES_LIMIT_MS, signal: again.signal });
  if (!health) {
    if (!again.signal.aborted)
      terminal.note(
        "viv: sessions are not paused: the service does not answer. Live ones fail with their host.",
      );
    return;
  }
  terminal.note("pausing all sessions before the host goes down …");
  await Promise.race([control.stop(PAUSE_ALL), askedAgain]);
}
