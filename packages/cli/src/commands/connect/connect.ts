/** `viv connect`: the group of the verbs add, ls, rotate and revoke. */
import { Command } from "commander";
import { CliError } from "../../cli-error.ts";
import { renderConnections } from "../../print/connection.ts";
import { doEach } from "../do-each.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";
import { addCommand, rotateCommand } from "./add.ts";

export function connectCommand(): Command {
  return new Command("connect")
    .summary("Connections of a session, its credentials for one origin each: add, ls, rotate, revoke")
    .description(
      "Connections of a session: credentials that the service adds to its requests to one origin. They are made here, and with viv create --connect FILE. Wakes nothing.",
    )
    .addCommand(addCommand())
    .addCommand(lsCommand())
    .addCommand(rotateCommand())
    .addCommand(revokeCommand());
}

function lsCommand(): Verb {
  return sessionVerb("ls", ["viv connect ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list a session's Connections")
    .description("List the Connections of a session, oldest first, with those that were revoked.")
    .option("--json", 'print {"connections": [Connection, …]}')
    .does(async (call: Call, reference: string) => {
      const { session } = await call.find(reference);
      call.print(await session.connections.list(), ({ connections }) =>
        renderConnections(connections, new Date()),
      );
    });
}

function revokeCommand(): Verb {
  return sessionVerb("revoke", ["viv connect revoke 4x7k2m9q0a1b2c3d4e5f6 payments"])
    .summary("revoke Connections of a session")
    .description(
      "Revoke Connections of a session for good. Their secrets are erased, and their origins are refused until the session ends.",
    )
    .argument("<name...>", "names of the Connections (viv connect ls)")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .does(async (call: Call, reference: string, names: string[]) => {
      const { session } = await call.find(reference);
      const known = (await session.connections.list()).connections.map(({ name }) => name);
      refuseUnknown(known, names);
      return doEach(call, { ids: new Set(names), key: "name" }, (name) => session.connections.revoke(name));
    });
}

/** Fails before anything is revoked: a misspelt name would leave its credential in use. */
function refuseUnknown(known: string[], names: string[]): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const hint = known.length === 0 ? "It has none." : `It has: ${known.join(", ")}.`;
  throw new CliError(`the session has no Connection ${JSON.stringify(unknown)}; nothing was revoked`, {
    hint,
  });
}
