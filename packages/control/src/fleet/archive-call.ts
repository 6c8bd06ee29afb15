/** Makes the calls of contract/node that ask back for chunks, and answers from one space of the object store. */
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { ChunkStore } from "@vivarium/archive/chunk-store";
import { serveChunks } from "@vivarium/archive/serve-chunks";
import { ARCHIVE_KEY_HEADER, SPACE_SECRET_HEADER } from "@vivarium/contract/node";
import { NodeError } from "./node-error.ts";
import { refusal, sendFailure } from "./node-http.ts";

export interface ArchiveAccess {
  archiveId: string;
  key: Buffer;
  secret: Buffer;
  /** The space: the node reaches nothing else. */
  store: ChunkStore;
  /** The snapshot or baseline that the state differs from. */
  base: string | undefined;
}

interface ArchiveCall extends Pick<ArchiveAccess, "key" | "secret" | "store"> {
  socketPath: string;
  path: string;
  signal: AbortSignal;
}

/** Resolves with the result that comes last, as JSON. */
export async function callWithChunks(call: ArchiveCall): Promise<unknown> {
  const { signal, store } = call;
  if (signal.aborted) throw new NodeError("aborted", "the call was given up before it was made");
  const request = begin(call);
  const abort = () => request.destroy(new NodeError("aborted", "the call was given up"));
  signal.addEventListener("abort", abort, { once: true });
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      request.once("response", resolve);
      request.on("error", (cause) => reject(sendFailure(request, cause)));
    });
    const status = response.statusCode ?? 0;
    if (status < 200 || status >= 300) throw await refusal(response, status);
    const result = await serveChunks(store, response, request, signal).catch((cause: unknown) => {
      throw new NodeError(signal.aborted ? "aborted" : "broken", "the node broke off", { cause });
    });
    if (!result) throw new NodeError("broken", "the node broke off before the end");
    return JSON.parse(result.toString("utf8"));
  } catch (error) {
    if (error instanceof SyntaxError)
      throw new NodeError("garbled", "the node's result is not JSON", { cause: error });
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
    request.end();
    // After the whole answer nothing is left to send; after a failure the node stops when the connection is gone.
    request.destroy();
  }
}

function begin({ socketPath, path, key, secret }: ArchiveCall) {
  const request = httpRequest({
    socketPath,
    method: "POST",
    path,
    agent: false,
    headers: {
      host: "node",
      "content-type": "application/octet-stream",
      connection: "keep-alive",
      [ARCHIVE_KEY_HEADER]: key.toString("base64url"),
      [SPACE_SECRET_HEADER]: secret.toString("base64url"),
    },
  });
  request.flushHeaders();
  return request;
}
