import { type FileContent, type FileEncoding, type FileEntries, LIMITS } from "@vivarium/contract/api";
import { LISTS } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";

interface Place {
  sessionId: string;
  path: string;
  signal: AbortSignal;
}

/** Reads a whole file. As text, bytes that are not UTF-8 become U+FFFD. */
export async function readFile(
  deps: MoveDeps,
  scope: Scope,
  { encoding, ...place }: Place & { encoding: FileEncoding },
): Promise<FileContent> {
  const query = { path: place.path, max_bytes: LIMITS.fileReadBytes };
  const bytes = await readGuest(deps, scope, place, (session, signal) =>
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

export async function listFiles(deps: MoveDeps, scope: Scope, place: Place): Promise<FileEntries> {
  const { items, end } = await readGuest(deps, scope, place, (session, signal) =>
    deps.nodes.guestList(
      machineIdOf(session),
      { method: "GET", path: "files/list", query: { path: place.path }, signal },
      LISTS.entries,
    ),
  );
  return { entries: items, ...(end.truncated && { truncated: true }) };
}
