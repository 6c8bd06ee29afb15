import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { parsePort } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { findSession } from "../sessions/find-session.ts";

export function unexposeCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("unexpose", ["viv unexpose 4x7k2m9q0a1b2c3d4e5f6 8000"])
    .summary("close an exposed port of a session")
    .description(
      `Close an exposed port: its URL, its tokens and open connections are dead when this returns. One that is not exposed
is fine. Wakes nothing. Prints the port.`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<port>", "the exposed port", parsePort)
    .option("--json", 'print {"ok": whether it was exposed}')
    .action((reference: string, port: number, options: ConnectionOptions) =>
      run(unexposePort(context, reference, port, options)),
    );
}

async function unexposePort(
  { config, terminal }: Context,
  reference: string,
  port: number,
  options: ConnectionOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, reference);
  const ok = await client.session(id).unexpose(port);
  if (options.json) terminal.out(JSON.stringify({ ok }));
  else terminal.out(String(port));
  if (!ok && !options.json) terminal.note(`viv: port ${port} was not exposed`);
  return EXIT.ok;
}
