import { mkdir } from "node:fs/promises";
import type { Command } from "commander";
import { withoutSeparator } from "../args/command-words.ts";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { runForeground } from "../service/foreground.ts";
import { findSession } from "../sessions/find-session.ts";
import { clientOptions, hostAlias } from "../ssh/client-options.ts";

export function sshCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ssh", [
    "viv ssh 4x7k2m9q0a1b2c3d4e5f6",
    "viv ssh 4x7k2m9q0a1b2c3d4e5f6 -- uname -a",
    "viv ssh 4x7k2m9q0a1b2c3d4e5f6 -- -N -L 8080:localhost:80",
  ])
    .summary("the system's ssh into a session")
    .description(
      `Run the system's OpenSSH client into a session, through the service: no port is opened and no key of yours is
needed. Everything after the id goes to ssh, after the host: options and a command. Exits with the code of ssh.
For scp, rsync, git and editors: viv ssh-config`,
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("[arguments...]", "for ssh: options, then a command")
    .passThroughOptions()
    .action((reference: string, words: string[], options: ConnectionOptions) =>
      run(openSsh(context, reference, withoutSeparator(words), options)),
    );
}

async function openSsh(
  context: Context,
  reference: string,
  words: string[],
  options: ConnectionOptions,
): Promise<number> {
  const config = withOptions(context.config, options);
  // Reports errors in the words of viv, before ssh reports them in its own.
  const client = await connect(config);
  const id = await findSession(client, reference);
  await client.sessions.get(id);
  await mkdir(config.stateDir, { recursive: true });
  const host = hostAlias(id);
  const set = clientOptions(config, host).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  return await runForeground(["ssh", ...set, host, ...words], {
    missing: "Install the OpenSSH client (apt-get install openssh-client), or use: viv shell",
  });
}
