/** `viv down`: stops the service of this machine, and with --sessions ends its sessions first. */
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { isAlive } from "@vivarium/kit/process-identity";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connect } from "../connect.ts";
import { endListed } from "../sessions/end-session.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findHolder, type Holder } from "../supervisor/lock.ts";
import { stopLeftPostgres } from "../supervisor/postgres.ts";
import type { Terminal } from "../terminal.ts";
import { type Call, Verb } from "./verb.ts";

const STOP_LIMIT_MS = 90_000;
const POLL_MS = 100;

export function downCommand(): Verb {
  return new Verb("down", ["sudo viv down", "sudo viv down --sessions"])
    .summary("stop the service of this machine")
    .description(
      `Stop the service of this machine: control plane, node daemon, gateway, database, in this order.
Machines of live sessions keep running without it, and the next "viv up" takes them over; their memory and processor
time stay in use meanwhile. With --sessions every session is ended first, and nothing is left running.`,
    )
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--sessions", "end all sessions first; their data is deleted")
    .does(down);
}

async function down({ config, terminal, options }: Call<{ sessions?: boolean }>): Promise<void> {
  const layout = layoutOf(config.dataDir);
  const holder = await findHolder(layout.lockFile);
  if (!holder) {
    // When a supervisor is killed, gateway, node and control end with it, but the database keeps running.
    const isDatabaseLeft = await stopLeftPostgres(path.join(layout.postgresDir, "data"));
    const stopped = isDatabaseLeft ? "; stopped the database that an earlier one had left" : "";
    return terminal.note(`viv: no service runs for ${config.dataDir}${stopped}`);
  }
  if (options.sessions) await endSessions({ ...config, url: holder.url }, terminal);
  await stopSupervisor(holder);
  terminal.note(`viv: the service of ${config.dataDir} has stopped`);
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

async function stopSupervisor(holder: Holder): Promise<void> {
  try {
    process.kill(holder.pid, "SIGTERM");
  } catch (cause) {
    if (!isAlive(holder)) return;
    throw new CliError(`cannot stop the service (pid ${holder.pid}): it belongs to another user`, {
      hint: "Run it as: sudo viv down",
      cause,
    });
  }
  const deadline = performance.now() + STOP_LIMIT_MS;
  while (isAlive(holder)) {
    if (performance.now() > deadline) {
      throw new CliError(`the service (pid ${holder.pid}) has not stopped after ${STOP_LIMIT_MS / 1000} s`);
    }
    await sleep(POLL_MS);
  }
}
