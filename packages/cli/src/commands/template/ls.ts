import type { Command } from "commander";
import { type ConnectionOptions, clientCommand } from "../../args/shared-options.ts";
import { withOptions } from "../../config.ts";
import { connect } from "../../connect.ts";
import type { Context } from "../../context.ts";
import { EXIT } from "../../exit-codes.ts";
import { paintFor } from "../../print/paint.ts";
import { renderTemplates } from "../../print/template.ts";

export function templateLsCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ls", ["viv template ls"])
    .summary("list templates")
    .description("List templates: the official ones, then your own.")
    .option("--json", 'print {"templates": [template, …]}')
    .action((options: ConnectionOptions) => run(listTemplates(context, options)));
}

async function listTemplates(context: Context, options: ConnectionOptions): Promise<number> {
  const { config, terminal } = context;
  const list = await (await connect(withOptions(config, options))).templates.list();
  const text = options.json
    ? JSON.stringify(list)
    : renderTemplates(list.templates, new Date(), paintFor(context));
  terminal.out(text);
  return EXIT.ok;
}
