/** `viv egress log`: prints the hosts that a session reached and those it was refused. */
import type { EgressLogFilter } from "@vivarium/sdk";
import { parseCount, parseDuration, parseSince } from "../../args/values.ts";
import { renderLog, renderLogLine } from "../../print/egress.ts";
import { untilCtrlC } from "../../service/interrupt.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";
import { followLog, takeNewest } from "./follow-log.ts";

interface EgressLogOptions {
  follow?: boolean;
  denied?: boolean;
  host?: string;
  since?: Date;
  limit: number;
  interval: number;
}

export function egressLogCommand(): Verb {
  return sessionVerb("log", [
    "viv egress log 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress log --denied --since 10m 4x7k2m9q0a1b2c3d4e5f6",
    "viv egress log -f --json 4x7k2m9q0a1b2c3d4e5f6 | jq -r .host",
  ])
    .summary("print what a session reached and what it was refused")
    .description(
      `Print the newest lines of a session's egress log, oldest first: connections that ended, refusals and DNS questions.
Kept for 7 days, also when the session has ended. With --follow, and then what comes, until the session ends or Ctrl-C.`,
    )
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
    .does(showLog);
}

async function showLog(call: Call<EgressLogOptions>, reference: string): Promise<void> {
  const { paint } = call;
  const { client, id, session } = await call.find(reference, { orEnded: true });
  const { follow, denied, since, host, limit, interval: intervalMs } = call.options;
  const filter: EgressLogFilter = { since, host, decision: denied ? "denied" : undefined };
  if (!follow) {
    const entries = await takeNewest(session.egress, filter, limit);
    return call.print({ entries }, () => renderLog(entries, paint));
  }
  await untilCtrlC(async (signal) => {
    const lines = followLog(client, { sessionId: id, filter, limit, intervalMs, signal });
    for await (const entry of lines) call.print(entry, () => renderLogLine(entry, paint));
  });
}
