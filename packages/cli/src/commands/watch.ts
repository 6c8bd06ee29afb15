/** `viv watch`: shows sessions and their changes, live. */
import { parseDuration } from "../args/values.ts";
import { untilCtrlC } from "../service/interrupt.ts";
import { followSessions } from "../watch/follow.ts";
import { printLines } from "../watch/print-lines.ts";
import { drawScreen } from "../watch/screen.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function watchCommand(): Verb {
  return clientVerb("watch", ["viv watch", "viv watch --interval 5s", "viv watch --json | tee changes"])
    .summary("show sessions and what happens to them, live")
    .description(
      `Show all sessions and what happens to them, until Ctrl-C. Without a terminal, prints one line for each session and
then one for each change.`,
    )
    .option("--interval <time>", "look again after this long (default: 1s)", parseDuration, 1000)
    .option("--json", "print changes as JSON, one a line: {at, session_id, name?, from?, to, detail?}")
    .does(watchSessions);
}

async function watchSessions(call: Call<{ interval: number }>): Promise<void> {
  const { terminal, config, options, paint } = call;
  const client = await call.connect();
  const isScreen = terminal.isInteractive && config.canDraw && !options.json;
  await untilCtrlC(async (signal) => {
    const polls = followSessions(client, { intervalMs: options.interval, signal });
    if (isScreen) await drawScreen({ terminal, paint }, polls, `${config.url}  (Ctrl-C ends)`);
    else await printLines(terminal, polls, { json: options.json === true });
  });
}
