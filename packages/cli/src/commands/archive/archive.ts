/** `viv archive`: the group of the verb retry. */
import { Command } from "commander";
import { archiveRetryCommand } from "./retry.ts";

export function archiveCommand(): Command {
  return new Command("archive")
    .summary("copies of saved states in the object store: retry")
    .description("Archives: copies of saved states in the service's object store. viv get shows a session's.")
    .addCommand(archiveRetryCommand());
}
