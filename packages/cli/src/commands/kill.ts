import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { doEach } from "./do-each.ts";

export function killCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("kill", ["viv kill 4x7k2m9q0a1b2c3d4e5f6 web", "viv kill 4x7k2m9q0a1b2c3d4e5f6 a b"])
    .summary("end named processes of a session")
    .description(
      "End named processes with SIGTERM, after 5 s with SIGKILL, and wait for it. What has exited stays as it is.",
    )
    .argument("<session>", "id of the session")
    .argument("<name...>", "names of processes")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .action((id: string, names: string[], options: ConnectionOptions) =>
      run(killProcesses(context, id, names, options)),
    );
}

async function killProcesses(
  context: Context,
  id: string,
  names: string[],
  options: ConnectionOptions,
): Promise<number> {
  const config = withOptions(context.config, options);
  const { processes } = (await connect(config)).session(id);
  const what = { ids: names, key: "name", json: options.json };
  return doEach({ ...context, config }, what, (name) => processes.kill(name));
}
