import { Command } from "commander";
import type { Context } from "../../context.ts";
import { egressGetCommand } from "./get.ts";
import { egressLogCommand } from "./log.ts";
import { egressSetCommand } from "./set.ts";

export function egressCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return new Command("egress")
    .summary("what a session may reach, and what it did: get, set, log")
    .description("Egress: what a session may reach, and what it did reach. Wakes nothing.")
    .addCommand(egressGetCommand(run, context))
    .addCommand(egressSetCommand(run, context))
    .addCommand(egressLogCommand(run, context));
}
