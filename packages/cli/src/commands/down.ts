/** `viv down`: stops the service of this machine; with --pause or --sessions no machine of a session runs on. */
import path from "node:path";
import { UsageError } from "../cli-error.ts";
import { requireNoneLeft, requireServed } from "../install/live-machines.ts";
import { stopService } from "../service/stop-service.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findHolder } from "../supervisor/lock.ts";
import { stopLeftPostgres } from "../supervisor/postgres.ts";
import { type Call, Verb } from "./verb.ts";

export function downCommand(): Verb {
  return new Verb("down", ["sudo viv down", "sudo viv down --pause", "sudo viv down --sessions"])
    .summary("stop the service of this machine")
    .description(
      `Stop the service of this machine: control plane, node daemon, gateway, database, in this order.
Machines of live sessions keep running without it, and the next "viv up" takes them over; their memory and processor
time stay in use meanwhile. With --pause every live session is paused first, as before the host goes down: nothing is
left running, and the sessions wake by their next use. With --sessions every session is ended first.`,
    )
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--pause", "pause all live sessions first; they wake after the next start")
    .option("--sessions", "end all sessions first; their data is deleted")
    .does(down);
}

async function down({
  config,
  terminal,
  options,
}: Call<{ pause?: boolean; sessions?: boolean }>): Promise<void> {
  if (options.pause && options.sessions)
    throw new UsageError("--pause keeps the sessions and --sessions ends them: choose one of the two");
  const layout = layoutOf(config.dataDir);
  const holder = await findHolder(layout.lockFile);
  if (!holder) {
    if (options.pause || options.sessions)
      await requireServed(config.dataDir, `down ${options.pause ? "--pause" : "--sessions"}`);
    // When a supervisor is killed, gateway, node and control end with it, but the database keeps running.
    const isDatabaseLeft = await stopLeftPostgres(path.join(layout.postgresDir, "data"));
    const stopped = isDatabaseLeft ? "; stopped the database that an earlier one had left" : "";
    return terminal.note(`viv: no service runs for ${config.dataDir}${stopped}`);
  }
  const fate = options.sessions ? "end" : options.pause ? "pause" : "leave";
  await stopService({ config, terminal }, holder, fate);
  if (fate !== "leave") await requireNoneLeft(config.dataDir, "Repeat viv down then.");
  terminal.note(`viv: the service of ${config.dataDir} has stopped`);
}
