import type { Session } from "@vivarium/sdk";
import { inPortions } from "./portions.ts";
import { runInGuest } from "./run-in-guest.ts";

/** A line of sha256sum: begins with a backslash if the name has an escaped backslash or line end. */
const LINE = /^(\\?)([0-9a-f]{64}) [ *](.*)$/;
const ESCAPES: Readonly<Record<string, string>> = { "\\n": "\n", "\\r": "\r", "\\\\": "\\" };

/** SHA-256 in hex of files of a session, by path; unreadable files are left out, and all if sha256sum is missing. */
export async function hashInGuest(
  session: Session,
  paths: readonly string[],
  signal?: AbortSignal,
): Promise<Map<string, string>> {
  const hashes = new Map<string, string>();
  for (const args of inPortions(paths)) {
    const { stdout } = await runInGuest(session, 'exec sha256sum -- "$@"', { args, signal });
    for (const line of stdout.toString().split("\n")) {
      const [, isEscaped, hash, name = ""] = LINE.exec(line) ?? [];
      if (hash === undefined) continue;
      hashes.set(isEscaped ? name.replaceAll(/\\[nr\\]/g, (found) => ESCAPES[found] ?? found) : name, hash);
    }
  }
  return hashes;
}
