import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../args/shared-options.ts";
import { parseCount } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { noteTiming } from "../print/timing.ts";
import { findSession } from "../sessions/find-session.ts";

interface ForkOptions extends TimedOptions {
  count?: number;
}

export function forkCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("fork", [
    "viv fork 4x7k2m9q0a1b2c3d4e5f6",
    "for child in $(viv fork --count 4 4x7k2m9q0a1b2c3d4e5f6); do viv exec $child -- hostname; done",
  ])
    .summary("make new sessions from one as it is now")
    .description(
      `Make new sessions from the memory, processes and disk of one at this instant; it goes on as it was. Prints the ids
of the children, one a line. All of them are live then, or none exists.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .option("--count <n>", "how many children (default: 1)", parseCount)
    .option("--timing", "say how long each stage took")
    .option("--json", 'print {"parent_session_id", "children": [id, …]}')
    .action((reference: string, options: ForkOptions) => run(forkSession(context, reference, options)));
}

async function forkSession(
  { config, terminal }: Context,
  reference: string,
  options: ForkOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { count, timing } = options;
  const result = await client.sessions.fork(id, { count }, { timing });
  if (options.json) terminal.out(JSON.stringify(result));
  else for (const child of result.children) terminal.out(child);
  noteTiming(terminal, options, result);
  return EXIT.ok;
}
