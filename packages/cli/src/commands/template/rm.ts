import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { doEach } from "../do-each.ts";

export function templateRmCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("rm", ["viv template rm with-tools", "viv template rm with-tools@1"])
    .summary("delete templates of your own")
    .description(
      "Delete templates of your own, or single versions. Sessions and checkpoints made from them go on.",
    )
    .argument("<template...>", "NAME, or NAME@VERSION for one version")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .action((names: string[], options: ConnectionOptions) => run(removeTemplates(context, names, options)));
}

async function removeTemplates(
  context: Context,
  names: string[],
  options: ConnectionOptions,
): Promise<number> {
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const what = { ids: names, key: "name", json: options.json };
  return doEach({ ...context, config }, what, (name) => client.templates.delete(name));
}
