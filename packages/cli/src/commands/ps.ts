import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { paintFor } from "../print/paint.ts";
import { renderProcesses } from "../print/process.ts";
import { findSession } from "../sessions/find-session.ts";

export function psCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ps", ["viv ps 4x7k2m9q0a1b2c3d4e5f6", "viv ps --json 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list the named processes of a session")
    .description("List the named processes of a session, those that have exited too, oldest first.")
    .argument("<session>", SESSION_ARGUMENT)
    .option("--json", 'print {"processes": [process, …]}')
    .action((reference: string, options: ConnectionOptions) =>
      run(listProcesses(context, reference, options)),
    );
}

async function listProcesses(
  context: Context,
  reference: string,
  options: ConnectionOptions,
): Promise<number> {
  const { config, terminal } = context;
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const { processes } = await client.session(id).processes.list();
  terminal.out(
    options.json ? JSON.stringify({ processes }) : renderProcesses(processes, new Date(), paintFor(context)),
  );
  return EXIT.ok;
}
