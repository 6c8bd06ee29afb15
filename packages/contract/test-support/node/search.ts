/** find and grep of a fake machine, with JavaScript's regular expressions. */
import { readdir, readFile, stat } from "node:fs/promises";
import { basename, join, relative } from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import type { FindResult, GrepResult, MatchResult } from "@vivarium/contract/guest";
import type { z } from "zod";
import { followed, workspaceOf } from "./files.ts";
import type { FakeMachine } from "./machine.ts";
import { Refusal } from "./refusal.ts";

type Match = GrepResult["matches"][number];

export async function findFiles(machine: FakeMachine, query: URLSearchParams): Promise<FindResult> {
  const dir = await followed(machine, query.get("path"));
  if (!(await stat(dir)).isDirectory()) throw new Refusal("not_a_directory", "not a directory");
  const { files, truncated } = await walk(dir, []);
  const pattern = globOf(query.get("pattern") ?? "");
  const found = files.filter((file) => pattern.test(relative(dir, file)));
  const most = Number(query.get("max_results"));
  const paths = found.slice(0, most).map((file) => guestPath(machine, file));
  return { paths, truncated: truncated || found.length > most, duration_us: 1 };
}

/** Regular files of the whole workspace, without links. */
export async function matchFiles(
  machine: FakeMachine,
  query: URLSearchParams,
): Promise<z.infer<typeof MatchResult>> {
  const root = workspaceOf(machine);
  const pattern = globOf(query.get("pattern") ?? "");
  const entries = await readdir(root, { recursive: true, withFileTypes: true });
  const names = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))
    .filter((name) => pattern.test(name))
    .toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const most = Number(query.get("max_results"));
  const files = await Promise.all(
    names.slice(0, most).map(async (path) => ({ path, bytes: (await stat(join(root, path))).size })),
  );
  return { files, truncated: names.length > most, duration_us: 1 };
}

export async function grepFiles(machine: FakeMachine, query: URLSearchParams): Promise<GrepResult> {
  const start = await followed(machine, query.get("path"));
  const pattern = patternOf(query.get("pattern") ?? "", query.get("case_sensitive") === "true");
  const only = globOf(query.get("file_pattern") ?? "*");
  const excluded = (query.get("exclude_dirs") ?? "").split(",");
  const isDirectory = (await stat(start)).isDirectory();
  const { files, truncated } = isDirectory
    ? await walk(start, excluded)
    : { files: [start], truncated: false };
  const most = Number(query.get("max_results"));
  const matches: Match[] = [];
  let [searched, matching] = [0, 0];
  for (const file of files.filter((each) => only.test(basename(each)))) {
    const content = await readFile(file);
    if (content.subarray(0, 8192).includes(0)) continue;
    searched += 1;
    const lines = linesOf(content.toString(), pattern, Number(query.get("context_lines") ?? 0));
    if (lines.length === 0) continue;
    if (matching === most) return { matches, files_searched: searched, truncated: true, duration_us: 1 };
    matching += 1;
    matches.push(...lines.map((line) => ({ path: guestPath(machine, file), ...line })));
  }
  return { matches, files_searched: searched, truncated, duration_us: 1 };
}

function linesOf(content: string, pattern: RegExp, context: number): Omit<Match, "path">[] {
  const lines = content.replace(/\n$/, "").split("\n");
  return lines.flatMap((line, i) => {
    if (!pattern.test(line)) return [];
    const around = {
      before: lines.slice(Math.max(0, i - context), i),
      after: lines.slice(i + 1, i + 1 + context),
    };
    return [{ line_number: i + 1, line, ...(context > 0 && around) }];
  });
}

/** Lists files and links below a directory in byte order; links are not followed. */
async function walk(dir: string, excluded: string[]): Promise<{ files: string[]; truncated: boolean }> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter(
      (file) =>
        !relative(dir, file)
          .split("/")
          .slice(0, -1)
          .some((part) => excluded.includes(part)),
    )
    .toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  return { files: files.slice(0, LIMITS.searchFiles), truncated: files.length > LIMITS.searchFiles };
}

const guestPath = (machine: FakeMachine, file: string) =>
  join("/workspace", relative(workspaceOf(machine), file));

function globOf(glob: string): RegExp {
  const source = glob
    .replaceAll(/[.+^${}()|\\]/g, "\\$&")
    .replaceAll(/(?<=^|\/)\*\*\//g, "\u0001")
    .replaceAll(/(?<=^|\/)\*\*$/g, "\u0002")
    .replaceAll("*", "[^/]*")
    .replaceAll("?", "[^/]")
    .replaceAll("\u0001", "(?:.*/)?")
    .replaceAll("\u0002", ".*");
  return new RegExp(`^${source}$`, "s");
}

function patternOf(source: string, isCaseSensitive: boolean): RegExp {
  if (/\(\?<?[=!]|\\[1-9]/.test(source)) throw new Refusal("bad_pattern", "lookaround and backreferences");
  try {
    return new RegExp(source, isCaseSensitive ? "u" : "iu");
  } catch (error) {
    throw new Refusal("bad_pattern", (error as Error).message);
  }
}
