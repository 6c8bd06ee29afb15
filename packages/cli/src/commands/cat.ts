import type { Command } from "commander";
import { parseSessionPath } from "../args/session-path.ts";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { sessionFinder } from "../sessions/find-session.ts";

export function catCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("cat", [
    "viv cat 4x7k2m9q0a1b2c3d4e5f6:notes.txt",
    "viv cat 4x7k2m9q0a1b2c3d4e5f6:out.tar | tar -t",
  ])
    .summary("print files of a session")
    .description("Print files of any size, byte by byte as they are, one after the other.")
    .argument("<id:path...>", "files to print")
    .action((names: string[], options: ConnectionOptions) => run(printFiles(context, names, options)));
}

async function printFiles(
  { config, terminal }: Context,
  names: string[],
  options: ConnectionOptions,
): Promise<number> {
  const paths = names.map(parseSessionPath);
  const client = await connect(withOptions(config, options));
  const find = sessionFinder(client);
  await withInterrupt(async (signal) => {
    for (const { session, path } of paths) {
      const content = client.session(await find(session)).files.readStream(path, { signal });
      for await (const chunk of content) await terminal.write("stdout", chunk);
    }
  });
  return EXIT.ok;
}
