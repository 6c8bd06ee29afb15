/** Stops the service of a data directory: plainly, or after its sessions were paused or ended. */
import { PAUSE_ALL_SIGNAL } from "@vivarium/contract/supervision";
import { sleep } from "@vivarium/kit/clock";
import { isAlive } from "@vivarium/kit/process-identity";
import type { Client } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { endListed } from "../sessions/end-session.ts";
import { PAUSE_AND_CLOSE_LIMIT_MS } from "../supervisor/host-shutdown.ts";
import { type Holder, refuseCommand } from "../supervisor/lock.ts";
import type { Terminal } from "../terminal.ts";

const STOP_LIMIT_MS = 90_000;
const POLL_MS = 100;
const PROGRESS_MS = 2_000;

/** The fate of sessions when the service stops. `leave`: machines of live ones run on. */
export type SessionsFate = "leave" | "pause" | "end";

export async function stopService(
  { config, terminal }: Context,
  holder: Holder,
  fate: SessionsFate,
): Promise<void> {
  refuseCommand(holder, config.dataDir);
  const there = { ...config, url: holder.url };
  if (fate === "end") await endSessions(there, terminal);
  if (fate === "pause") await pauseAndStop(there, terminal, holder);
  else await stopSupervisor(holder, "SIGTERM", STOP_LIMIT_MS);
}

async function endSessions(config: CliConfig, terminal: Terminal): Promise<void> {
  const client = await connect(config);
  let ended = 0;
  for (;;) {
    const { sessions } = await client.sessions.list({ limit: 500 });
    if (sessions.length === 0) break;
    for (const { session_id } of sessions) {
      await endListed(client, session_id);
      ended++;
    }
  }
  terminal.note(`viv: ended ${ended} ${ended === 1 ? "session" : "sessions"}`);
}

/** Asks the supervisor to pause all sessions and stop, and says how far it is. */
async function pauseAndStop(config: CliConfig, terminal: Terminal, holder: Holder): Promise<void> {
  if (!holder.pauses) {
    throw new CliError(
      "the service that runs is of an earlier version, which cannot pause all its sessions",
      {
        hint: "Restart it with this version first: viv down, then viv up.",
      },
    );
  }
  const client = await connect(config);
  const over = new AbortController();
  const shown = showProgress(client, terminal, over.signal);
  try {
    await stopSupervisor(holder, PAUSE_ALL_SIGNAL, PAUSE_AND_CLOSE_LIMIT_MS + STOP_LIMIT_MS);
  } finally {
    over.abort();
    await shown;
  }
}

/** Says how many sessions are still live, whenever that changes. */
async function showProgress(client: Client, terminal: Terminal, over: AbortSignal): Promise<void> {
  let before: number | undefined;
  while (!over.aborted) {
    const live = await client.sessions
      .list({ state: "live", limit: 500 }, { signal: over })
      .then(({ sessions }) => sessions.length)
      .catch(() => undefined);
    if (live !== undefined && live !== before)
      terminal.note(`viv: ${live} live ${live === 1 ? "session" : "sessions"} to pause`);
    before = live ?? before;
    await sleep(PROGRESS_MS, over);
  }
}

async function stopSupervisor(holder: Holder, signal: NodeJS.Signals, limitMs: number): Promise<void> {
  try {
    process.kill(holder.pid, signal);
  } catch (cause) {
    if (!isAlive(holder)) return;
    throw new CliError(`cannot stop the service (pid ${holder.pid}): it belongs to another user`, {
      hint: "Run it as: sudo viv down",
      cause,
    });
  }
  const deadline = performance.now() + limitMs;
  while (isAlive(holder)) {
    if (performance.now() > deadline) {
      throw new CliError(`the service (pid ${holder.pid}) has not stopped after ${limitMs / 1000} s`);
    }
    await sleep(POLL_MS);
  }
}
