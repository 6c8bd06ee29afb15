/** `viv template`: the group of the verbs save, ls and rm. */
import { Command } from "commander";
import { templateLsCommand } from "./ls.ts";
import { templateRmCommand } from "./rm.ts";
import { templateSaveCommand } from "./save.ts";

export function templateCommand(): Command {
  return new Command("template")
    .summary("what sessions start from: save, ls, rm")
    .description("Templates: what sessions start from (viv create --template NAME).")
    .addCommand(templateSaveCommand())
    .addCommand(templateLsCommand())
    .addCommand(templateRmCommand());
}
