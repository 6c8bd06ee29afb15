/** `viv storage`: the group of the verbs ls, which is called without a name too, and check, for the operator of the service. */
import { Command } from "commander";
import { storageCheckCommand } from "./check.ts";
import { storageLsCommand } from "./ls.ts";

export function storageCommand(): Command {
  return new Command("storage")
    .summary("what is stored: ls, check")
    .description(
      "Saved states, volumes and artifacts of all organisations, as they lie on this host's disk. Needs root. The service may run or not.",
    )
    .addCommand(storageLsCommand(), { isDefault: true })
    .addCommand(storageCheckCommand());
}
