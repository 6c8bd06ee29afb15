import { mkdir } from "node:fs/promises";
import { sessionFinder } from "../sessions/find-session.ts";
import { clientOptions, hostAlias, TYPED_HOST } from "../ssh/client-options.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

/** Session names that are one word for ssh, and not a pattern. */
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

/** A session given by name is reached by that name too; the name is resolved now. */
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
