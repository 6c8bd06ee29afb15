import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { doEach } from "../do-each.ts";

export function checkpointRmCommand(
  run: (code: Promise<number>) => Promise<void>,
  context: Context,
): Command {
  return clientCommand("rm", ["viv checkpoint rm chk_4x7k2m9q0a1b2c3d4e5f6"])
    .summary("delete checkpoints")
    .description("Delete checkpoints. Sessions that were started from them go on.")
    .argument("<checkpoint...>", "ids of the checkpoints")
    .option("--json", 'print {"results": [{checkpoint_id, ok, error?, code?}, …]}')
    .action((ids: string[], options: ConnectionOptions) => run(removeCheckpoints(context, ids, options)));
}

async function removeCheckpoints(
  context: Context,
  ids: string[],
  options: ConnectionOptions,
): Promise<number> {
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const what = { ids, key: "checkpoint_id", json: options.json };
  return doEach({ ...context, config }, what, (id) => client.checkpoints.delete(id));
}
