/** `viv key`: the group of the verbs create, ls and revoke. */
import { Command } from "commander";
import { keyCreateCommand } from "./create.ts";
import { keyLsCommand } from "./ls.ts";
import { keyRevokeCommand } from "./revoke.ts";

export function keyCommand(): Command {
  return new Command("key")
    .summary("who may use the service: create, ls, revoke")
    .description("API keys: who may use the service, for which project, and how long.")
    .addCommand(keyCreateCommand())
    .addCommand(keyLsCommand())
    .addCommand(keyRevokeCommand());
}
