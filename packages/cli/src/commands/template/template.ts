import { Command } from "commander";
import type { Context } from "../../context.ts";
import { templateLsCommand } from "./ls.ts";
import { templateRmCommand } from "./rm.ts";
import { templateSaveCommand } from "./save.ts";

export function templateCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return new Command("template")
    .summary("what sessions start from: save, ls, rm")
    .description("Templates: what sessions start from (viv create --template NAME).")
    .addCommand(templateSaveCommand(run, context))
    .addCommand(templateLsCommand(run, context))
    .addCommand(templateRmCommand(run, context));
}
