/** Downloads a file of any size, only as fast as the client takes it. Every refusal comes before the first byte. */
import type { IncomingMessage } from "node:http";
import type { Scope } from "../access/principal.ts";
import { NodeError } from "../fleet/node-error.ts";
import { openGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { FileCall } from "./query.ts";

export interface Download {
  sizeBytes: number;
  /** Fails when the guest sends fewer bytes than `sizeBytes`. Destroying it ends the work in the guest. */
  content: IncomingMessage;
  /** Ends the activity, so that the session may become idle. */
  release: () => void;
}

export async function downloadFile(
  deps: MoveDeps,
  scope: Scope,
  { sessionId, path, signal }: FileCall,
): Promise<Download> {
  const { result, release } = await openGuest(deps, scope, sessionId, async (session) => {
    const call = { method: "GET", path: "files/read", query: { path }, signal } as const;
    const content = await deps.nodes.guest(machineIdOf(session), call);
    return { content, sizeBytes: sizeOf(content) };
  });
  return { ...result, release };
}

function sizeOf(content: IncomingMessage): number {
  const size = Number(content.headers["content-length"]);
  if (Number.isSafeInteger(size) && size >= 0) return size;
  content.destroy();
  throw new NodeError("garbled", "the node does not say how long the file is");
}
