/** `viv egress`: the group of the verbs get, set and log. */
import { Command } from "commander";
import { egressGetCommand } from "./get.ts";
import { egressLogCommand } from "./log.ts";
import { egressSetCommand } from "./set.ts";

export function egressCommand(): Command {
  return new Command("egress")
    .summary("what a session may reach, and what it did: get, set, log")
    .description("Egress: what a session may reach, and what it did reach. Wakes nothing.")
    .addCommand(egressGetCommand())
    .addCommand(egressSetCommand())
    .addCommand(egressLogCommand());
}
