/** `viv registry`: the group of the verbs login, ls and logout. */
import { Command } from "commander";
import { registryLoginCommand } from "./login.ts";
import { registryLogoutCommand } from "./logout.ts";
import { registryLsCommand } from "./ls.ts";

export function registryCommand(): Command {
  return new Command("registry")
    .summary("credentials for registries of images: login, ls, logout")
    .description("Credentials with which the service pulls private images from registries.")
    .addCommand(registryLoginCommand())
    .addCommand(registryLsCommand())
    .addCommand(registryLogoutCommand());
}
