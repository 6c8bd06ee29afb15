import type { Command } from "commander";
import { clientCommand, SESSION_ARGUMENT, type TimedOptions } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { showSession } from "../print/show-session.ts";
import { findSession } from "../sessions/find-session.ts";

export function resumeCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("resume", [
    "viv resume 4x7k2m9q0a1b2c3d4e5f6",
    "viv resume --timing 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("wake a paused session")
    .description("Wake a paused session; returns when it is live. An exec does that by itself.")
    .argument("<session>", SESSION_ARGUMENT)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .action((reference: string, options: TimedOptions) => run(resumeSession(context, reference, options)));
}

async function resumeSession(context: Context, reference: string, options: TimedOptions): Promise<number> {
  const client = await connect(withOptions(context.config, options));
  const id = await findSession(client, reference);
  showSession(context, await client.sessions.resume(id, { timing: options.timing }), options);
  return EXIT.ok;
}
