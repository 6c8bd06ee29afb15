import type { Session } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { type Entry, parentOf, type ScanOptions, type Tree } from "../copy/entry.ts";
import { runInGuest } from "./run-in-guest.ts";

/**
 * Shell script that prints type and mode, size, time, path and link target of everything at and below $1, down to depth
 * $2, each ended by NUL. GNU find prints all in one walk; with another find, a shell prints each file.
 */
const SCRIPT = `
[ -e "$1" ] || [ -L "$1" ] || exit 44
[ -z "$3" ] || [ ! -L "$1" ] || exit 45
if find "$1" -prune -printf '' 2>/dev/null; then
  exec find -H "$1" -maxdepth "$2" -printf '%y%m\\0%s\\0%T@\\0%P\\0%l\\0'
fi
exec find -H "$1" -maxdepth "$2" -exec sh -c 'for f; do
  t=o; [ -f "$f" ] && t=f; [ -d "$f" ] && t=d; [ -L "$f" ] && [ "$f" != "$0" ] && t=l
  follow=; [ "$f" = "$0" ] && follow=-L
  p=\${f#"$0"}
  printf "%s%s\\0%s\\0%s\\0" "$t" $(stat $follow -c "%a %s %Y" "$f")
  printf "%s\\0%s\\0" "\${p#/}" "$(readlink "$f")"
done' "$1" {} +`;
const NOTHING_THERE = 44;
/** Exit code of the script: the path is a link, and links must not be followed. */
const LINK_THERE = 45;
const EVERYTHING = 1_000_000;
/** Most read errors that are shown. */
const COMPLAINTS = 10;
const FIELDS = 5;
const KINDS: Readonly<Record<string, Entry["kind"]>> = { f: "file", d: "directory", l: "link" };
/** Error of a file that was deleted between reading its directory and reading the file. */
const VANISHED = /: No such file or directory$/;

/** Reads the tree at and below an absolute path of a session; undefined when nothing exists there. */
export async function scanGuest(
  session: Session,
  path: string,
  { depth = EVERYTHING, isLinkKept = false, signal }: ScanOptions & { signal?: AbortSignal } = {},
): Promise<Tree | undefined> {
  const root = path.replace(/(?<=.)\/+$/, "");
  const { exitCode, stdout, stderr } = await runInGuest(session, SCRIPT, {
    args: [root, `${depth}`, isLinkKept ? "kept" : ""],
    signal,
  });
  if (exitCode === NOTHING_THERE) return undefined;
  if (exitCode === LINK_THERE) return new Map([["", { kind: "link", bytes: 0, mode: 0o777, modifiedAt: 0 }]]);
  const complaints = stderr.split("\n").filter((line) => line !== "" && !VANISHED.test(line));
  const tree = readTree(stdout);
  const top = tree.get("");
  if (complaints.length === 0) return tree;
  if (top === undefined) throw new CliError(`cannot read ${path} in the session: ${complaints[0]}`);
  top.unread = complaints.slice(0, COMPLAINTS).join("; ");
  return tree;
}

/** Parses the script's output, which is not trusted: every path must be in a directory of the tree. */
export function readTree(output: Buffer): Tree {
  const tree: Tree = new Map();
  const fields = splitAtNul(output);
  for (let i = 0; i + FIELDS <= fields.length; i += FIELDS) {
    const [type = "", size, time, name, target] = fields.slice(i, i + FIELDS).map(String);
    const bytes = fields[i + 3] as Buffer;
    const path = name ?? "";
    if (!isBelow(tree, path)) throw new CliError(`the session lists a file that is not its own: ${path}`);
    // Hazard: a second entry for a path could turn a directory into a link to any path, with files below it.
    if (tree.has(path)) continue;
    const isText = Buffer.from(path).equals(bytes);
    tree.set(path, {
      kind: (isText ? KINDS[type.charAt(0)] : undefined) ?? "other",
      bytes: Number(size),
      mode: Number.parseInt(type.slice(1), 8) & 0o777,
      modifiedAt: Math.floor(Number(time)),
      ...(target === "" ? {} : { target }),
    });
  }
  return tree;
}

function isBelow(tree: Tree, path: string): boolean {
  if (path === "") return tree.size === 0;
  if (path.split("/").some((part) => ["", ".", ".."].includes(part))) return false;
  return tree.get(parentOf(path))?.kind === "directory";
}

function splitAtNul(output: Buffer): Buffer[] {
  const fields: Buffer[] = [];
  let start = 0;
  for (let end = output.indexOf(0); end !== -1; end = output.indexOf(0, start)) {
    fields.push(output.subarray(start, end));
    start = end + 1;
  }
  return fields;
}
