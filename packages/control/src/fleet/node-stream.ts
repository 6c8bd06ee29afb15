/** Opens a duplex connection to a machine through the node, for a terminal or the tunnel. */
import { type ClientRequest, request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TerminalSpec, TunnelSpec } from "@vivarium/contract/guest";
import { encodeOpening, isNodeErrorCode, OpeningReader } from "@vivarium/contract/node";
import { NodeError } from "./node-error.ts";
import { refusal, sendFailure } from "./node-http.ts";

interface StreamCall {
  socketPath: string;
  path: string;
  spec: TerminalSpec | TunnelSpec;
  signal: AbortSignal;
}

/** Resolves once the other side is open. Ending or destroying the stream ends it for both sides. */
export async function openNodeStream({ socketPath, path, spec, signal }: StreamCall): Promise<Duplex> {
  const opening = encodeOpening(spec);
  const { socket, head } = await upgrade(socketPath, path, signal);
  const abort = () => socket.destroy(new NodeError("aborted", "the call was given up"));
  signal.addEventListener("abort", abort, { once: true });
  try {
    if (signal.aborted) throw new NodeError("aborted", "the call was given up");
    socket.write(opening);
    if (head.length > 0) socket.unshift(head);
    await readAnswer(socket);
    return socket;
  } catch (cause) {
    socket.destroy();
    throw cause instanceof NodeError
      ? cause
      : new NodeError("broken", "the node broke the connection", { cause });
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function upgrade(socketPath: string, path: string, signal: AbortSignal) {
  return new Promise<{ socket: Socket; head: Buffer }>((resolve, reject) => {
    if (signal.aborted) return reject(new NodeError("aborted", "the call was given up before it was made"));
    const headers = { host: "node", connection: "Upgrade", upgrade: "vivarium-stream" };
    const call: ClientRequest = httpRequest({ socketPath, method: "GET", path, agent: false, headers });
    const abort = () => call.destroy(new NodeError("aborted", "the call was given up"));
    signal.addEventListener("abort", abort, { once: true });
    call.once("close", () => signal.removeEventListener("abort", abort));
    call.once("upgrade", (_response, socket, head) => {
      signal.removeEventListener("abort", abort);
      // The user of the stream sees the error as well. Without a listener, an error would end the process.
      socket.on("error", () => socket.destroy());
      resolve({ socket: socket as Socket, head });
    });
    call.once("response", (response) => {
      refusal(response, response.statusCode ?? 0).then(reject, reject);
    });
    call.on("error", (cause) => reject(sendFailure(call, cause)));
    call.end();
  });
}

/** Reads the node's first message: empty, or a refusal. The bytes after it are put back for the next reader. */
async function readAnswer(socket: Socket): Promise<void> {
  const reader = new OpeningReader();
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    const answer = push(reader, chunk as Buffer);
    if (!answer) continue;
    if (answer.rest.length > 0) socket.unshift(answer.rest);
    return checkAnswer(answer.value);
  }
  throw new Error("the node's answer ended within the opening");
}

function push(reader: OpeningReader, chunk: Buffer) {
  try {
    return reader.push(chunk);
  } catch (cause) {
    throw new NodeError("garbled", "the node's answer to the opening cannot be read", { cause });
  }
}

function checkAnswer(value: unknown): void {
  if (typeof value !== "object" || value === null) throw garbled();
  if (!("code" in value)) return;
  const { code, message } = value as { code: unknown; message?: unknown };
  if (typeof code !== "string" || !isNodeErrorCode(code)) throw garbled();
  throw new NodeError("refused", typeof message === "string" ? message : code, { code });
}

function garbled(): NodeError {
  return new NodeError("garbled", "the node's answer to the opening does not fit the contract");
}
