/** `viv secret`: the names of a session's secrets. Their values are given once, by `viv create --secret`. */
import { Command } from "commander";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

export function secretCommand(): Command {
  return new Command("secret")
    .summary("names of a session's secrets: ls")
    .description(
      "Secrets of a session: variables whose values nobody is shown again. They are given with viv create --secret NAME, and destroyed with the session.",
    )
    .addCommand(lsCommand());
}

function lsCommand(): Verb {
  return sessionVerb("ls", ["viv secret ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list the names of a session's secrets")
    .description("List the names of a session's secrets, one a line. Wakes nothing.")
    .option("--json", "print [name, …]")
    .does(async (call: Call, reference: string) => {
      const { client, id } = await call.find(reference);
      const names = (await client.sessions.get(id)).secret_names ?? [];
      call.printLines(names, names);
    });
}
