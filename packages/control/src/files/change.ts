/** Writes, deletes and renames files, and makes directories. */
import type { FileDeleted, FileWrite, FileWriteResult, Mkdir, Rename } from "@vivarium/contract/api";
import { UploadWritten } from "@vivarium/contract/node";
import { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { GuestCall } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { changeGuest } from "../guest/call-guest.ts";
import type { BreakTexts } from "../guest/explain-break.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import { decodeContent } from "./content.ts";
import type { FileCall } from "./query.ts";

export const WRITTEN = { schema: UploadWritten, limitBytes: 4096 };
const DONE = { schema: z.object({}), limitBytes: 4096 };

/** Errors for a change of files whose outcome is unknown. */
export const CHANGE_BREAK_TEXTS: BreakTexts = {
  paused: "the session was paused during this change of its files; whether it was made is unknown",
  exchanged:
    "the session was paused and woken, or restored, during this change of its files; whether it was made is unknown",
  unknown: "the connection to the session's machine broke; whether its files were changed is unknown",
};

/** Writes a whole file. The old file is replaced completely or not at all. */
export async function writeFile(
  deps: MoveDeps,
  scope: Scope,
  { content, encoding, ...file }: FileCall & FileWrite,
): Promise<FileWriteResult> {
  const bytes = decodeContent({ content, encoding });
  await writeBytes(deps, scope, { ...file, bytes });
  return { path: file.path, bytes: bytes.length };
}

export async function writeBytes(
  deps: MoveDeps,
  scope: Scope,
  { path, bytes, ...call }: FileCall & { bytes: Buffer },
): Promise<void> {
  const write = { method: "PUT", path: "files/write", query: { path }, body: bytes } as const;
  await change(deps, scope, call, write, { answer: WRITTEN });
}

export async function deleteFile(
  deps: MoveDeps,
  scope: Scope,
  { path, recursive, ...call }: FileCall & { recursive?: boolean },
): Promise<FileDeleted> {
  const query = { path, recursive: recursive ? true : undefined };
  await change(deps, scope, call, { method: "DELETE", path: "files", query });
  return { ok: true, path };
}

/** Makes a directory and its parents. One that exists is fine. */
export async function makeDirectory(
  deps: MoveDeps,
  scope: Scope,
  { path, ...call }: FileCall,
): Promise<Mkdir> {
  await change(deps, scope, call, { method: "POST", path: "files/mkdir", body: { path } });
  return { path };
}

/** Renames a file or directory. Makes the destination's parents, and replaces a file there. */
export async function renameFile(
  deps: MoveDeps,
  scope: Scope,
  { path, dest_path, ...call }: FileCall & Rename,
): Promise<Rename> {
  const paths = { path, dest_path };
  const rename = { method: "POST", path: "files/rename", body: paths } as const;
  await change(deps, scope, call, rename, { onFailure: nameDestination(paths) });
  return paths;
}

/** Prefixes a refusal about the destination alone with `dest_path`. Other errors are rethrown. */
function nameDestination({ path, dest_path }: Rename): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof NodeError) || error.failure !== "refused") throw error;
    const { message, code } = error;
    if (!isAbout(message, dest_path) || isAbout(message, path)) throw error;
    throw new NodeError("refused", `dest_path: ${message}`, { code, cause: error });
  };
}

/**
 * Whether the agent's message starts with this path. The node has replaced its non-ASCII characters by spaces, and
 * cut a long message.
 */
function isAbout(message: string, path: string): boolean {
  const prefix = `${path}: `.replace(/[^\x20-\x7e]/g, " ");
  return message.startsWith(prefix.slice(0, message.length));
}

async function change(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, signal: gone }: Omit<FileCall, "path">,
  call: Omit<GuestCall, "signal">,
  { answer = DONE, onFailure }: { answer?: typeof DONE; onFailure?: (error: unknown) => never } = {},
): Promise<void> {
  const during = { sessionId, texts: CHANGE_BREAK_TEXTS, signal: gone };
  await changeGuest(deps, scope, during, async (session, signal) => {
    await deps.nodes.guestJson(machineIdOf(session), { ...call, signal }, answer).catch(onFailure);
  });
}
