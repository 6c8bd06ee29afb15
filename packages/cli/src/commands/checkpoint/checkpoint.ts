import { Command } from "commander";
import type { Context } from "../../context.ts";
import { checkpointCreateCommand } from "./create.ts";
import { checkpointLsCommand } from "./ls.ts";
import { checkpointRmCommand } from "./rm.ts";
import { checkpointStartCommand } from "./start.ts";

export function checkpointCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return new Command("checkpoint")
    .summary("saved instants of sessions: create, ls, start, rm")
    .description("Checkpoints: saved instants of sessions, which stay until they are deleted.")
    .addCommand(checkpointCreateCommand(run, context))
    .addCommand(checkpointLsCommand(run, context))
    .addCommand(checkpointStartCommand(run, context))
    .addCommand(checkpointRmCommand(run, context));
}
