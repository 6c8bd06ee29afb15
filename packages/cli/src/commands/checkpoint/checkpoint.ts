/** `viv checkpoint`: the group of the verbs create, ls, start and rm. */
import { Command } from "commander";
import { checkpointCreateCommand } from "./create.ts";
import { checkpointLsCommand } from "./ls.ts";
import { checkpointRmCommand } from "./rm.ts";
import { checkpointStartCommand } from "./start.ts";

export function checkpointCommand(): Command {
  return new Command("checkpoint")
    .summary("saved instants of sessions: create, ls, start, rm")
    .description("Checkpoints: saved instants of sessions, which stay until they are deleted.")
    .addCommand(checkpointCreateCommand())
    .addCommand(checkpointLsCommand())
    .addCommand(checkpointStartCommand())
    .addCommand(checkpointRmCommand());
}
