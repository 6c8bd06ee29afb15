/** `viv find`: finds files of a session by name. */
import { InvalidArgumentError } from "commander";
import { parseSessionOrPath } from "../args/session-path.ts";
import { parseCount } from "../args/values.ts";
import { showableLine } from "../print/table.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function findCommand(): Verb {
  return clientVerb("find", [
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
    .does(findFiles);
}

/** Parses the most results that a search may return. */
export function parseResults(text: string): number {
  const count = parseCount(text);
  if (count > 10_000) throw new InvalidArgumentError("Expected a whole number from 1 to 10000.");
  return count;
}

/** Notes on standard error that a search found more than it returned. */
export function noteTruncated({ terminal, options }: Call, { truncated }: { truncated: boolean }): void {
  if (truncated && !options.json)
    terminal.note("viv: there is more; ask for less at once, or for more with --limit");
}

async function findFiles(call: Call<{ limit?: number }>, where: string, pattern: string): Promise<void> {
  const at = parseSessionOrPath(where);
  const { files } = (await call.find(at.session)).session;
  const found = await files.find(pattern, { path: at.path, maxResults: call.options.limit });
  call.printLines(
    found,
    found.paths.map((path) => showableLine(call.terminal, path)),
  );
  noteTruncated(call, found);
}
