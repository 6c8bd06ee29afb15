import { sleep } from "@vivarium/kit/clock";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { parseDuration } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { paintFor } from "../print/paint.ts";
import { untilCtrlC } from "../service/interrupt.ts";
import { followSessions } from "../watch/follow.ts";
import { printLines } from "../watch/print-lines.ts";
import { drawScreen } from "../watch/screen.ts";

interface WatchOptions extends ConnectionOptions {
  interval: number;
}

export function watchCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("watch", ["viv watch", "viv watch --interval 5s", "viv watch --json | tee changes"])
    .summary("show sessions and what happens to them, live")
    .description(
      `Show all sessions and what happens to them, until Ctrl-C. Without a terminal, prints one line for each session and
then one for each change.`,
    )
    .option("--interval <time>", "look again after this long (default: 1s)", parseDuration, 1000)
    .option("--json", "print changes as JSON, one a line: {at, session_id, name?, from?, to, detail?}")
    .action((options: WatchOptions) => run(watchSessions(context, options)));
}

async function watchSessions(context: Context, options: WatchOptions): Promise<number> {
  const { terminal } = context;
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const isScreen = terminal.isInteractive && config.canDraw && !options.json;
  await untilCtrlC(async (signal) => {
    const looks = followSessions({ client, sleep }, { intervalMs: options.interval, signal });
    const paint = paintFor(context);
    if (isScreen) await drawScreen({ terminal, paint }, looks, `${config.url}  (Ctrl-C ends)`);
    else await printLines(terminal, looks, { json: options.json === true });
  });
  return EXIT.ok;
}
