import { mkdir } from "node:fs/promises";
import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { clientOptions, hostAlias, TYPED_HOST } from "../ssh/client-options.ts";

export function sshConfigCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ssh-config", [
    "viv ssh-config >> ~/.ssh/config   # then: ssh viv-ID, scp, rsync, git clone viv-ID:repo",
    "viv ssh-config 4x7k2m9q0a1b2c3d4e5f6 > config && rsync -e 'ssh -F config' -a src viv-4x7k2m9q0a1b2c3d4e5f6:",
  ])
    .summary("settings for ssh, scp, rsync, git and editors")
    .description(
      `Print what ssh_config(5) needs to reach sessions by name, for every program that uses ssh: viv-ID for a session,
or viv-ID and ID.viv for all there are and will be. The API key comes from the environment or the local service.`,
    )
    .argument("[session...]", "ids of sessions (default: any session)")
    .action((ids: string[], options: ConnectionOptions) => run(printConfig(context, ids, options)));
}

async function printConfig(context: Context, ids: string[], options: ConnectionOptions): Promise<number> {
  const config = withOptions(context.config, options);
  await mkdir(config.stateDir, { recursive: true });
  const blocks =
    ids.length === 0
      ? [renderBlock("viv-* *.viv", clientOptions(config, TYPED_HOST))]
      : ids.map((id) => renderBlock(hostAlias(id), clientOptions(config, hostAlias(id))));
  context.terminal.out(blocks.join("\n\n"));
  return EXIT.ok;
}

function renderBlock(host: string, options: [name: string, value: string][]): string {
  return [`Host ${host}`, ...options.map(([name, value]) => `  ${name} ${value}`)].join("\n");
}
