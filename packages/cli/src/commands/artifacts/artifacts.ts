/** `viv artifacts`: the group of the verbs capture, ls, get and rm. */
import { Command } from "commander";
import { artifactsCaptureCommand } from "./capture.ts";
import { artifactsGetCommand } from "./get.ts";
import { artifactsLsCommand } from "./ls.ts";
import { artifactsRmCommand } from "./rm.ts";

export function artifactsCommand(): Command {
  return new Command("artifacts")
    .summary("files captured out of sessions: capture, ls, get, rm")
    .description(
      "Artifacts: files captured out of sessions, which stay for a week, also after their session.",
    )
    .addCommand(artifactsCaptureCommand())
    .addCommand(artifactsLsCommand())
    .addCommand(artifactsGetCommand())
    .addCommand(artifactsRmCommand());
}
