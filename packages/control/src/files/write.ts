import type { FileEncoding, FileWriteResult } from "@vivarium/contract/api";
import { UploadWritten } from "@vivarium/contract/node";
import type { Scope } from "../access/principal.ts";
import { changeGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import { decodeContent } from "./content.ts";
import { CHANGE_BREAK_TEXTS } from "./paths.ts";

export const WRITTEN = { schema: UploadWritten, limitBytes: 4096 };

interface FileToWrite {
  path: string;
  content: string;
  encoding?: FileEncoding | null;
}

/** Writes a whole file. The old file is replaced completely or not at all. */
export async function writeFile(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, file, signal }: { sessionId: string; file: FileToWrite; signal: AbortSignal },
): Promise<FileWriteResult> {
  const bytes = decodeContent(file);
  await writeBytes(deps, scope, { sessionId, path: file.path, bytes, signal });
  return { path: file.path, bytes: bytes.length };
}

export async function writeBytes(
  deps: MoveDeps,
  scope: Scope,
  { path, bytes, ...call }: { sessionId: string; path: string; bytes: Buffer; signal: AbortSignal },
): Promise<void> {
  await changeGuest(deps, scope, { ...call, texts: CHANGE_BREAK_TEXTS }, (session, signal) =>
    deps.nodes.guestJson(
      machineIdOf(session),
      { method: "PUT", path: "files/write", query: { path }, body: bytes, signal },
      WRITTEN,
    ),
  );
}
