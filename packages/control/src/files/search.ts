import type { FoundLines, FoundPaths } from "@vivarium/contract/api";
import { LISTS, type ListShape } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import type { GuestCall } from "../fleet/node-client.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";

interface Search {
  sessionId: string;
  path: string;
  pattern: string;
  maxResults: number;
  signal: AbortSignal;
}

export interface LineSearch extends Search {
  filePattern?: string;
  caseSensitive: boolean;
  contextLines: number;
  /** Names of directories, separated by commas. */
  excludeDirs?: string;
}

/** Files and links whose path matches a glob. */
export async function findFiles(deps: MoveDeps, scope: Scope, search: Search): Promise<FoundPaths> {
  const query = queryOf(search);
  const found = await searchGuest(deps, scope, search, { path: "files/find", query, shape: LISTS.paths });
  const { truncated, duration_us } = found.end;
  return { paths: found.items, truncated, path: search.path, duration_ms: milliseconds(duration_us) };
}

/** Lines that match a regular expression. */
export async function grepFiles(deps: MoveDeps, scope: Scope, search: LineSearch): Promise<FoundLines> {
  const query = {
    ...queryOf(search),
    file_pattern: search.filePattern,
    case_sensitive: search.caseSensitive ? true : undefined,
    context_lines: search.contextLines > 0 ? search.contextLines : undefined,
    exclude_dirs: search.excludeDirs,
  };
  const found = await searchGuest(deps, scope, search, { path: "files/grep", query, shape: LISTS.matches });
  return {
    matches: found.items.map(({ path, line_number, line, before, after }) => ({
      path,
      line_number,
      line,
      ...(before && before.length > 0 && { before }),
      ...(after && after.length > 0 && { after }),
    })),
    files_searched: found.end.files_searched,
    truncated: found.end.truncated,
    path: search.path,
    duration_ms: milliseconds(found.end.duration_us),
  };
}

async function searchGuest<Item, End>(
  deps: MoveDeps,
  scope: Scope,
  search: Search,
  { path, query, shape }: Pick<GuestCall, "path" | "query"> & { shape: ListShape<Item, End> },
): Promise<{ items: Item[]; end: End }> {
  return await readGuest(deps, scope, search, (session, signal) =>
    deps.nodes.guestList(machineIdOf(session), { method: "GET", path, query, signal }, shape),
  );
}

function queryOf({ path, pattern, maxResults }: Search) {
  return { path, pattern, max_results: maxResults };
}

const milliseconds = (us: number) => Math.round(us / 1000);
