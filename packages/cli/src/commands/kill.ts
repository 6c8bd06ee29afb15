import type { Command } from "commander";
import { type ConnectionOptions, clientCommand, SESSION_ARGUMENT } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { findSession } from "../sessions/find-session.ts";
import { doEach } from "./do-each.ts";

export function killCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("kill", ["viv kill 4x7k2m9q0a1b2c3d4e5f6 web", "viv kill 4x7k2m9q0a1b2c3d4e5f6 a b"])
    .summary("end named processes of a session")
    .description(
      "End named processes with SIGTERM, after 5 s with SIGKILL, and wait for it. What has exited stays as it is.",
    )
    .argument("<session>", SESSION_ARGUMENT)
    .argument("<name...>", "names of processes")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .action((reference: string, names: string[], options: ConnectionOptions) =>
      run(killProcesses(context, reference, names, options)),
    );
}

async function killProcesses(
  context: Context,
  reference: string,
  names: string[],
  options: ConnectionOptions,
): Promise<number> {
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const { processes } = client.session(await findSession(client, reference));
  const what = { ids: names, key: "name", json: options.json };
  return doEach({ ...context, config }, what, (name) => processes.kill(name));
}
