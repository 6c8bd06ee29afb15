/** `viv up`: runs the service of this machine, in the foreground or the background. */
import { Option } from "commander";
import { parseListen } from "../args/values.ts";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey } from "../connect.ts";
import { EXIT } from "../exit-codes.ts";
import { startInBackground } from "../service/start-in-background.ts";
import { WAIT_FOR_START_MS } from "../service/start-limit.ts";
import { waitForHealth } from "../service/wait-for-health.ts";
import { urlOf } from "../supervisor/address.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findService } from "../supervisor/lock.ts";
import { LOG_PLACES, type LogPlace } from "../supervisor/logs.ts";
import { supervise } from "../supervisor/supervise.ts";
import { type Call, Verb } from "./verb.ts";

export function upCommand(): Verb {
  return new Verb("up", [
    "sudo viv up",
    "sudo viv up --background",
    "sudo viv up --listen 0.0.0.0:7400 --data-dir /srv/vivarium",
  ])
    .summary("serve on this machine")
    .description(
      `Serve on this machine: start and watch over database, gateway, node daemon and control plane, and start
again whatever dies. Stays in the foreground until Ctrl-C. Needs root. One service per data directory.
With DATABASE_URL set, that PostgreSQL is used and none is started.`,
    )
    .option(
      "--listen <host:port>",
      "address of the HTTP interface (default: $VIV_LISTEN or 127.0.0.1:7400)",
      parseListen,
    )
    .option("--data-dir <dir>", "everything the service keeps (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .option("--images-dir <dir>", "guest kernel and templates (default: <data-dir>/pool/images)")
    .option("--background", "return as soon as it answers, and leave it running")
    .addOption(
      new Option("--log <place>", "where all processes log: files in <data-dir>/log, or standard output")
        .choices(LOG_PLACES)
        .default("files")
        .conflicts("background"),
    )
    .does(up);
}

async function up({
  config,
  terminal,
  options,
}: Call<{ background?: boolean; log: LogPlace }>): Promise<number> {
  if (!options.background) return supervise({ config, terminal }, { logPlace: options.log });
  const holder = await findService(layoutOf(config.dataDir).lockFile);
  if (holder) {
    await waitForHolder(config, holder.url);
    terminal.note(`viv: a service (pid ${holder.pid}) already serves ${config.dataDir} at ${holder.url}`);
    return EXIT.ok;
  }
  const url = urlOf(config.listen);
  await startInBackground({ config: { ...config, url }, terminal });
  return EXIT.ok;
}

/** Waits for a service that holds the lock, since it may still be starting. */
async function waitForHolder(config: CliConfig, url: string): Promise<void> {
  if (await waitForHealth(connectWithoutKey({ ...config, url }), { limitMs: WAIT_FOR_START_MS })) return;
  throw new CliError(`a service has ${config.dataDir}, and does not answer at ${url}`, {
    hint: `See ${config.dataDir}/log/*.log; viv down ends it.`,
  });
}
