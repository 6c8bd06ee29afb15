/** Changes to files that carry no content. */

import type { FileDeleted } from "@vivarium/contract/api";
import { z } from "zod";
import type { Scope } from "../access/principal.ts";
import type { GuestCall } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { changeGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import { CHANGE_BREAK_TEXTS, type FileCall } from "./paths.ts";

export async function deleteFile(
  deps: MoveDeps,
  scope: Scope,
  { recursive, ...file }: FileCall & { recursive: boolean },
): Promise<FileDeleted> {
  const query = { path: file.path, recursive: recursive ? true : undefined };
  await change(deps, scope, file, { method: "DELETE", path: "files", query });
  return { ok: true, path: file.path };
}

/** Parents are made as well; a directory that exists is fine. */
export async function makeDirectory(deps: MoveDeps, scope: Scope, file: FileCall): Promise<{ path: string }> {
  const { path } = file;
  await change(deps, scope, file, { method: "POST", path: "files/mkdir", body: { path } });
  return { path };
}

/** Replaces a file at the destination, whose parents are made. */
export async function renameFile(
  deps: MoveDeps,
  scope: Scope,
  { destPath, ...file }: FileCall & { destPath: string },
): Promise<{ path: string; dest_path: string }> {
  const paths = { path: file.path, dest_path: destPath };
  await change(deps, scope, file, { method: "POST", path: "files/rename", body: paths }, ({ message }) =>
    isAbout(message, destPath) && !isAbout(message, file.path) ? `dest_path: ${message}` : undefined,
  );
  return paths;
}

/**
 * The agent's message starts with the refused path. The node has replaced its non-ASCII characters by spaces, and cut a
 * long message.
 */
function isAbout(message: string, path: string): boolean {
  const prefix = `${path}: `.replace(/[^\x20-\x7e]/g, " ");
  return message.startsWith(prefix.slice(0, message.length));
}

const DONE = { schema: z.object({}), limitBytes: 4096 };

async function change(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, signal: gone }: FileCall,
  call: Omit<GuestCall, "signal">,
  /** A better message for a refusal, with the field's name. */
  reword: (error: NodeError) => string | undefined = () => undefined,
): Promise<void> {
  await changeGuest(
    deps,
    scope,
    { sessionId, texts: CHANGE_BREAK_TEXTS, signal: gone },
    async (session, signal) => {
      try {
        await deps.nodes.guestJson(machineIdOf(session), { ...call, signal }, DONE);
      } catch (error) {
        const words = error instanceof NodeError && error.failure === "refused" ? reword(error) : undefined;
        throw words
          ? new NodeError("refused", words, { code: (error as NodeError).code, cause: error })
          : error;
      }
    },
  );
}
