import type { Command } from "commander";
import { parseSessionPath } from "../args/session-path.ts";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { sessionFinder } from "../sessions/find-session.ts";
import { doEach } from "./do-each.ts";

export function mkdirCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("mkdir", ["viv mkdir 4x7k2m9q0a1b2c3d4e5f6:src/lib"])
    .summary("make directories in a session")
    .description("Make directories and their parents. One that exists already is fine.")
    .argument("<id:path...>", "directories to make")
    .option("--json", 'print {"results": [{path, ok, error?, code?}, …]}')
    .action((names: string[], options: ConnectionOptions) => run(makeDirectories(context, names, options)));
}

async function makeDirectories(
  context: Context,
  names: string[],
  options: ConnectionOptions,
): Promise<number> {
  // All are understood before any is made.
  const paths = new Map(names.map((name) => [name, parseSessionPath(name)]));
  const config = withOptions(context.config, options);
  const client = await connect(config);
  const find = sessionFinder(client);
  const what = { ids: [...paths.keys()], key: "path", json: options.json };
  return doEach({ ...context, config }, what, async (name) => {
    const { session, path } = paths.get(name) ?? parseSessionPath(name);
    await client.session(await find(session)).files.mkdir(path);
  });
}
