import { type Command, InvalidArgumentError } from "commander";
import { parseSessionOrPath } from "../args/session-path.ts";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { parseCount } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { showableLine } from "../print/table.ts";
import { findSession } from "../sessions/find-session.ts";

interface FindOptions extends ConnectionOptions {
  limit?: number;
}

export function findCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("find", [
    "viv find 4x7k2m9q0a1b2c3d4e5f6 '*.py'",
    "viv find --json 4x7k2m9q0a1b2c3d4e5f6:src 'lib/**'",
  ])
    .summary("find files of a session by name")
    .description(
      `Print the paths of files that match a glob: * and ? and […] within one directory, /** at the end for everything
below. At most 10,000 files are looked at.`,
    )
    .argument("<id[:path]>", "where to look (without a path: /workspace)")
    .argument("<pattern>", "glob, relative to the path")
    .option("--limit <n>", "at most this many, up to 10000 (default: 1000)", parseResults)
    .option("--json", "print the answer as JSON: {paths, truncated, path, duration_ms}")
    .action((where: string, pattern: string, options: FindOptions) =>
      run(findFiles(context, where, pattern, options)),
    );
}

/** How many results a search may be asked for. */
export function parseResults(text: string): number {
  const count = parseCount(text);
  if (count > 10_000) throw new InvalidArgumentError("Expected a whole number from 1 to 10000.");
  return count;
}

async function findFiles(
  { config, terminal }: Context,
  where: string,
  pattern: string,
  options: FindOptions,
): Promise<number> {
  const client = await connect(withOptions(config, options));
  const { session, path } = parseSessionOrPath(where);
  const { files } = client.session(await findSession(client, session));
  const found = await files.find(pattern, { path, maxResults: options.limit });
  if (options.json) {
    terminal.out(JSON.stringify(found));
    return EXIT.ok;
  }
  for (const each of found.paths) terminal.out(showableLine(terminal, each));
  if (found.truncated) terminal.note("viv: there is more; ask for less at once, or for more with --limit");
  return EXIT.ok;
}
