import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderPolicy } from "../../print/egress.ts";
import { findSession } from "../../sessions/find-session.ts";

export function egressGetCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("get", ["viv egress get 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("show what a session may reach")
    .description("Show the egress policy of a session: its mode, and one line for each entry.")
    .argument("<session>", SESSION_ARGUMENT)
    .option("--json", 'print {"session_id", "mode", "allow": [entry, …]}')
    .action((reference: string, options: ConnectionOptions) => run(getPolicy(context, reference, options)));
}

async function getPolicy(
  { config, terminal }: Context,
  reference: string,
  options: ConnectionOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const policy = await client.session(id).egress.get();
  terminal.out(options.json ? JSON.stringify(policy) : renderPolicy(policy));
  return EXIT.ok;
}
