/** `viv audit`: the group of the verbs ls, verify and export. */
import { Command } from "commander";
import { auditExportCommand } from "./export.ts";
import { auditLsCommand } from "./ls.ts";
import { auditVerifyCommand } from "./verify.ts";

export function auditCommand(): Command {
  return new Command("audit")
    .summary("who changed what, and whether the log is whole: ls, verify, export")
    .description("The audit log: changes, denials and commands of the organisation. Without a verb: ls.")
    .addCommand(auditLsCommand(), { isDefault: true })
    .addCommand(auditVerifyCommand())
    .addCommand(auditExportCommand());
}
