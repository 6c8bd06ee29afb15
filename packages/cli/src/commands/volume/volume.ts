/** `viv volume`: the group of the verbs create, ls, attach, grow and rm. */
import { Command } from "commander";
import { volumeAttachCommand } from "./attach.ts";
import { volumeCreateCommand } from "./create.ts";
import { volumeGrowCommand } from "./grow.ts";
import { volumeLsCommand } from "./ls.ts";
import { volumeRmCommand } from "./rm.ts";

export function volumeCommand(): Command {
  return new Command("volume")
    .summary("disks that outlive sessions: create, ls, attach, grow, rm")
    .description("Volumes: disks that outlive sessions, mounted at /volume (viv create --volume ID).")
    .addCommand(volumeCreateCommand())
    .addCommand(volumeLsCommand())
    .addCommand(volumeAttachCommand())
    .addCommand(volumeGrowCommand())
    .addCommand(volumeRmCommand());
}
