import { pipeline } from "node:stream/promises";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { findSession } from "../sessions/find-session.ts";
import { sessionOfHost } from "../ssh/client-options.ts";

/** For SSH clients; people use `viv ssh`. */
export function tunnelCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("tunnel", ["ssh -o ProxyCommand='viv tunnel %n' sandbox@viv-4x7k2m9q0a1b2c3d4e5f6"])
    .summary("the bytes of a session's SSH server, for a ProxyCommand")
    .description(
      "Join standard input and output to the SSH server of a session, as a ProxyCommand for SSH clients.",
    )
    .argument("<session>", `${SESSION_ARGUMENT}, or a host name as viv ssh-config makes them`)
    .action((host: string, options: ConnectionOptions) => run(openTunnel(context, host, options)));
}

async function openTunnel({ config }: Context, host: string, options: ConnectionOptions): Promise<number> {
  const client = await connect(withOptions(config, options));
  const id = await findSession(client, sessionOfHost(host));
  await withInterrupt(async (signal) => {
    const tunnel = await client.session(id).tunnel({ signal });
    const incoming = pipeline(tunnel, process.stdout);
    // The output of the session decides when the tunnel ends; our input may end before, or never.
    pipeline(process.stdin, tunnel, { signal }).catch(() => {});
    await incoming.finally(() => process.stdin.destroy());
  });
  return EXIT.ok;
}
