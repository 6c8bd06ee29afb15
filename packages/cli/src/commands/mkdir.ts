/** `viv mkdir`: makes directories in sessions. */
import { parseSessionPath } from "../args/session-path.ts";
import { sessionFinder } from "../sessions/find-session.ts";
import { doEach } from "./do-each.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function mkdirCommand(): Verb {
  return clientVerb("mkdir", ["viv mkdir 4x7k2m9q0a1b2c3d4e5f6:src/lib"])
    .summary("make directories in a session")
    .description("Make directories and their parents. One that exists already is fine.")
    .argument("<id:path...>", "directories to make")
    .option("--json", 'print {"results": [{path, ok, error?, code?}, …]}')
    .does(makeDirectories);
}

async function makeDirectories(call: Call, names: string[]): Promise<number> {
  // All names are parsed before the first directory is made.
  const paths = new Map(names.map((name) => [name, parseSessionPath(name)]));
  const client = await call.connect();
  const find = sessionFinder(client);
  return doEach(call, { ids: paths.keys(), key: "path" }, async (name) => {
    const { session, path } = paths.get(name) ?? parseSessionPath(name);
    await client.session(await find(session)).files.mkdir(path);
  });
}
