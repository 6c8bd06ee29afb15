import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { renderPolicy } from "../../print/egress.ts";

export function egressGetCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("get", ["viv egress get 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("show what a session may reach")
    .description("Show the egress policy of a session: its mode, and one line for each entry.")
    .argument("<session>", "id of the session")
    .option("--json", 'print {"session_id", "mode", "allow": [entry, …]}')
    .action((id: string, options: ConnectionOptions) => run(getPolicy(context, id, options)));
}

async function getPolicy(
  { config, terminal }: Context,
  id: string,
  options: ConnectionOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const policy = await client.session(id).egress.get();
  terminal.out(options.json ? JSON.stringify(policy) : renderPolicy(policy));
  return EXIT.ok;
}
