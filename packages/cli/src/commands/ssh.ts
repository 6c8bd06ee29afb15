/** `viv ssh`: runs the system's ssh client into a session. */
import { mkdir } from "node:fs/promises";
import { withoutSeparator } from "../args/command-words.ts";
import { runForeground } from "../service/foreground.ts";
import { clientOptions, hostAlias } from "../ssh/client-options.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function sshCommand(): Verb {
  return sessionVerb("ssh", [
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
    .argument("[arguments...]", "for ssh: options, then a command")
    .passThroughOptions()
    .does(openSsh);
}

async function openSsh(call: Call, reference: string, words: string[]): Promise<number> {
  const { config } = call;
  // Resolved here so that viv reports an unknown session, not ssh.
  const { client, id } = await call.find(reference);
  await client.sessions.get(id);
  await mkdir(config.stateDir, { recursive: true });
  const host = hostAlias(id);
  const set = clientOptions(config, host).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
  return await runForeground(["ssh", ...set, host, ...withoutSeparator(words)], {
    missing: "Install the OpenSSH client (apt-get install openssh-client), or use: viv shell",
  });
}
