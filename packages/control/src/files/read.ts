import { type FileContent, type FileEncoding, type FileEntries, LIMITS } from "@vivarium/contract/api";
import { LISTS } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { FileCall } from "./paths.ts";

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
  const { items, end } = await readGuest(deps, scope, file, (session, signal) =>
    deps.nodes.guestList(
      machineIdOf(session),
      { method: "GET", path: "files/list", query: { path: file.path }, signal },
      LISTS.entries,
    ),
  );
  return { entries: items, ...(end.truncated && { truncated: true }) };
}
