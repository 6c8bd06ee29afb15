/** Reads files, lists directories, and finds names and lines. */
import {
  type FileContent,
  type FileEncoding,
  type FileEntries,
  type FoundLines,
  type FoundPaths,
  LIMITS,
} from "@vivarium/contract/api";
import { LISTS, type ListShape } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { FileCall, SearchQuery } from "./query.ts";

/** Reads a whole file. As text, bytes that are not UTF-8 become U+FFFD. */
export async function readFile(
  deps: MoveDeps,
  scope: Scope,
  { encoding, ...file }: FileCall & { encoding: FileEncoding },
): Promise<FileContent> {
  const query = { path: file.path, max_bytes: LIMITS.fileReadBytes };
  const bytes = await readGuest(deps, scope, file, (session, signal) =>
    deps.nodes.guestBytes(
      machineIdOf(session),
      { method: "GET", path: "files/read", query, signal },
      LIMITS.fileReadBytes,
    ),
  );
  return encoding === "base64"
    ? { content: bytes.toString("base64"), encoding }
    : { content: bytes.toString("utf8") };
}

export async function listFiles(deps: MoveDeps, scope: Scope, file: FileCall): Promise<FileEntries> {
  const call = { ...file, query: { path: file.path } };
  const { items, end } = await list(deps, scope, "files/list", call, LISTS.entries);
  return { entries: items, ...(end.truncated && { truncated: true }) };
}

type Search = Omit<FileCall, "path"> & { query: SearchQuery };

/** Files and links whose path matches a glob. */
export async function findFiles(deps: MoveDeps, scope: Scope, search: Search): Promise<FoundPaths> {
  const { items, end } = await list(deps, scope, "files/find", search, LISTS.paths);
  const { truncated, duration_us } = end;
  return { paths: items, truncated, path: search.query.path, duration_ms: milliseconds(duration_us) };
}

/** Lines that match a regular expression. */
export async function grepFiles(deps: MoveDeps, scope: Scope, search: Search): Promise<FoundLines> {
  const { items, end } = await list(deps, scope, "files/grep", search, LISTS.matches);
  return {
    matches: items.map(({ path, line_number, line, before, after }) => ({
      path,
      line_number,
      line,
      ...(before && before.length > 0 && { before }),
      ...(after && after.length > 0 && { after }),
    })),
    files_searched: end.files_searched,
    truncated: end.truncated,
    path: search.query.path,
    duration_ms: milliseconds(end.duration_us),
  };
}

async function list<Item, End>(
  deps: MoveDeps,
  scope: Scope,
  path: string,
  { query, ...call }: Omit<FileCall, "path"> & { query: { path: string } },
  shape: ListShape<Item, End>,
): Promise<{ items: Item[]; end: End }> {
  return await readGuest(deps, scope, call, (session, signal) =>
    deps.nodes.guestList(machineIdOf(session), { method: "GET", path, query, signal }, shape),
  );
}

const milliseconds = (us: number) => Math.round(us / 1000);
