/** `viv grep`: searches the contents of a session's files. */
import type { FoundLine } from "@vivarium/sdk";
import { InvalidArgumentError } from "commander";
import { parseSessionOrPath } from "../args/session-path.ts";
import { collectList } from "../args/values.ts";
import { EXIT } from "../exit-codes.ts";
import { showableLine } from "../print/table.ts";
import { noteTruncated, parseResults } from "./find.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface GrepOptions {
  ignoreCase?: boolean;
  context?: number;
  include?: string;
  excludeDir?: string[];
  limit?: number;
}

export function grepCommand(): Verb {
  return clientVerb("grep", [
    "viv grep TODO 4x7k2m9q0a1b2c3d4e5f6:src",
    "viv grep -i -C 2 --include '*.ts' --exclude-dir node_modules 'fixme|todo' 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("search the files of a session")
    .description(
      `Print the lines that match a regular expression (RE2 syntax) as PATH:LINE:TEXT. At most 10,000 files and 256 MiB
are read. Exits with 1 when no line matches and with 2 when the search fails, as grep(1) does.`,
    )
    .argument("<pattern>", "regular expression")
    .argument("<id[:path]>", "where to look (without a path: /workspace)")
    .option("-i, --ignore-case", "take upper and lower case for the same")
    .option("-C, --context <lines>", "show up to 10 lines around each match", parseContext)
    .option("--include <glob>", "only files of these names")
    .option("--exclude-dir <names>", "leave out directories of these names; repeatable", collectList)
    .option("--limit <n>", "at most this many matching files, up to 10000 (default: 1000)", parseResults)
    .option("--json", "print the answer as JSON: {matches, files_searched, truncated, path, duration_ms}")
    .does(searchFiles);
}

function parseContext(text: string): number {
  if (!/^(\d|10)$/.test(text)) throw new InvalidArgumentError("Expected a whole number from 0 to 10.");
  return Number(text);
}

async function searchFiles(call: Call<GrepOptions>, pattern: string, where: string): Promise<number> {
  const { options } = call;
  const { session: reference, path } = parseSessionOrPath(where);
  const { files } = (await call.find(reference)).session;
  const found = await files.grep(pattern, {
    path,
    caseSensitive: !options.ignoreCase,
    contextLines: options.context,
    filePattern: options.include,
    excludeDirs: options.excludeDir,
    maxResults: options.limit,
  });
  call.printLines(found, renderMatches(call, found.matches));
  noteTruncated(call, found);
  return found.matches.length > 0 ? EXIT.ok : EXIT.noMatch;
}

/** As grep(1): `:` after the line number of a match, `-` after that of a context line, `--` between groups. */
function* renderMatches({ terminal, paint }: Call, matches: readonly FoundLine[]): Generator<string> {
  const show = (path: string, line: number, sign: string, text: string) =>
    `${paint("magenta", showableLine(terminal, path))}${sign}${paint("green", String(line))}${sign}${showableLine(terminal, text)}`;
  let isFirst = true;
  for (const { path, line_number, line, before = [], after = [] } of matches) {
    const hasContext = before.length + after.length > 0;
    if (hasContext && !isFirst) yield "--";
    isFirst = false;
    for (const [i, text] of before.entries()) yield show(path, line_number - before.length + i, "-", text);
    yield show(path, line_number, ":", line);
    for (const [i, text] of after.entries()) yield show(path, line_number + 1 + i, "-", text);
  }
}
