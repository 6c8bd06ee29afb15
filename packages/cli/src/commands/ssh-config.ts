/** `viv ssh-config`: prints the ssh_config(5) blocks that reach sessions. */
import { mkdir } from "node:fs/promises";
import { sessionFinder } from "../sessions/find-session.ts";
import { clientOptions, hostAlias, TYPED_HOST } from "../ssh/client-options.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

/** References that may be written as a host of ssh_config(5): one word, without wildcards. */
const HOST_PATTERN = /^[A-Za-z0-9._-]+$/;

export function sshConfigCommand(): Verb {
  return clientVerb("ssh-config", [
    "viv ssh-config >> ~/.ssh/config   # then: ssh viv-ID, scp, rsync, git clone viv-ID:repo",
    "viv ssh-config 4x7k2m9q0a1b2c3d4e5f6 > config && rsync -e 'ssh -F config' -a src viv-4x7k2m9q0a1b2c3d4e5f6:",
  ])
    .summary("settings for ssh, scp, rsync, git and editors")
    .description(
      `Print what ssh_config(5) needs to reach sessions by name, for every program that uses ssh: viv-ID for a session,
or viv-ID and ID.viv for all there are and will be. The API key comes from the environment or the local service.`,
    )
    .argument("[session...]", "sessions by id, name or beginning of the id (default: any session)")
    .does(printConfig);
}

async function printConfig(call: Call, references: string[]): Promise<void> {
  const { config, terminal } = call;
  const blocks =
    references.length === 0
      ? [renderBlock(["viv-*", "*.viv"], clientOptions(config, TYPED_HOST))]
      : await blocksOf(call, references);
  await mkdir(config.stateDir, { recursive: true });
  terminal.out(blocks.join("\n\n"));
}

/** One block per session, for its id and the reference as typed; a name is resolved now, not at each connect. */
async function blocksOf(call: Call, references: string[]): Promise<string[]> {
  const find = sessionFinder(await call.connect());
  return await Promise.all(
    references.map(async (reference) => {
      const alias = hostAlias(await find(reference));
      const asGiven = HOST_PATTERN.test(reference) ? [hostAlias(reference)] : [];
      return renderBlock([...new Set([alias, ...asGiven])], clientOptions(call.config, alias));
    }),
  );
}

function renderBlock(hosts: string[], options: [name: string, value: string][]): string {
  return [`Host ${hosts.join(" ")}`, ...options.map(([name, value]) => `  ${name} ${value}`)].join("\n");
}
