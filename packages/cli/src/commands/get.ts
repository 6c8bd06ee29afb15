import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { paintFor } from "../print/paint.ts";
import { renderSession } from "../print/session.ts";
import { findSession } from "../sessions/find-session.ts";

export function getCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("get", ["viv get 4x7k2m9q0a1b2c3d4e5f6", "viv get 4x7k2m9q0a1b2c3d4e5f6 --json"])
    .summary("show a session")
    .description("Show one session as it is now.")
    .argument("<session>", SESSION_ARGUMENT)
    .option("--json", "print the record as JSON")
    .action((reference: string, options: ConnectionOptions) => run(getSession(context, reference, options)));
}

async function getSession(context: Context, reference: string, options: ConnectionOptions): Promise<number> {
  const { config, terminal } = context;
  const client = await connect(withOptions(config, options));
  const record = await client.sessions.get(await findSession(client, reference));
  terminal.out(options.json ? JSON.stringify(record) : renderSession(record, paintFor(context)));
  return EXIT.ok;
}
