import { sleep } from "@vivarium/kit/clock";
import type { EgressLogFilter } from "@vivarium/sdk";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../../args/shared-options.ts";
import { parseCount, parseDuration, parseSince } from "../../args/values.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderLog, renderLogLine } from "../../print/egress.ts";
import { paintFor } from "../../print/paint.ts";
import { untilCtrlC } from "../../service/interrupt.ts";
import { findSession } from "../../sessions/find-session.ts";
import { followLog, takeNewest } from "./follow-log.ts";

interface EgressLogOptions extends ConnectionOptions {
  follow?: boolean;
  denied?: boolean;
  host?: string;
  since?: Date;
  limit: number;
  interval: number;
}

export function egressLogCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("log", [
    "viv egress log 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress log --denied --since 10m 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress log -f --json 4x7k2m9q0a1b2c3d4e5f6 | jq -r .host",
  ])
    .summary("print what a session reached and what it was refused")
    .description(
      `Print the newest lines of a session's egress log, oldest first: connections that ended, refusals and DNS questions.
Kept for 7 days, also when the session has ended. With --follow, and then what comes, until the session ends or Ctrl-C.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .option("-f, --follow", "go on with what comes")
    .option("--denied", "only what was refused")
    .option("--host <name>", "only this host name")
    .option("--since <time>", "not older: 10m, 12h, 7d, or an instant", parseSince)
    .option("--limit <n>", "at most this many to begin with (default: 100)", parseCount, 100)
    .option(
      "--interval <time>",
      "with --follow, look again after this long (default: 1s)",
      parseDuration,
      1000,
    )
    .option("--json", 'print {"entries": [entry, …]}; with --follow one entry a line')
    .action((reference: string, options: EgressLogOptions) => run(showLog(context, reference, options)));
}

async function showLog(context: Context, reference: string, options: EgressLogOptions): Promise<number> {
  const { terminal } = context;
  const client = await connect(withOptions(context.config, options));
  const id = await findSession(client, reference, { orEnded: true });
  const { since, host, limit } = options;
  const filter: EgressLogFilter = { since, host, decision: options.denied ? "denied" : undefined };
  const paint = paintFor(context);
  if (!options.follow) {
    const entries = await takeNewest(client.session(id).egress, filter, limit);
    terminal.out(options.json ? JSON.stringify({ entries }) : renderLog(entries, paint));
    return EXIT.ok;
  }
  await untilCtrlC(async (signal) => {
    const { interval: intervalMs } = options;
    const lines = followLog({ client, sleep }, { sessionId: id, filter, limit, intervalMs, signal });
    for await (const entry of lines)
      terminal.out(options.json ? JSON.stringify(entry) : renderLogLine(entry, paint));
  });
  return EXIT.ok;
}
