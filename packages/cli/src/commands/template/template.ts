/** `viv template`: the group of the verbs import, build, save, ls, log and rm. */
import { Command } from "commander";
import { templateBuildCommand } from "./build.ts";
import { templateImportCommand } from "./import.ts";
import { templateLogCommand } from "./log.ts";
import { templateLsCommand } from "./ls.ts";
import { templateRmCommand } from "./rm.ts";
import { templateSaveCommand } from "./save.ts";

export function templateCommand(): Command {
  return new Command("template")
    .summary("what sessions start from: import, build, save, ls, log, rm")
    .description("Templates: what sessions start from (viv create --template NAME).")
    .addCommand(templateImportCommand())
    .addCommand(templateBuildCommand())
    .addCommand(templateSaveCommand())
    .addCommand(templateLsCommand())
    .addCommand(templateLogCommand())
    .addCommand(templateRmCommand());
}
