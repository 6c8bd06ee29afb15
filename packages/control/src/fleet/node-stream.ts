/** A duplex connection to a machine through the node: a terminal, or the tunnel. */
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
  const { socket, head } = await upgrade(socketPath, path, signal);
  const abort = () => socket.destroy(new NodeError("aborted", "the call was given up"));
  signal.addEventListener("abort", abort, { once: true });
  try {
    if (signal.aborted) throw new NodeError("aborted", "the call was given up");
    socket.write(encodeOpening(spec));
    await readAnswer(socket, head);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
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

/** The node's first message: empty, or a refusal. */
async function readAnswer(socket: Socket, head: Buffer): Promise<void> {
  const reader = new OpeningReader();
  let chunk = head;
  for (;;) {
    const opening = push(reader, chunk);
    if (opening) {
      if (opening.rest.length > 0) socket.unshift(opening.rest);
      return checkAnswer(opening.value);
    }
    chunk = await nextChunk(socket);
  }
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

/** Reads one chunk without starting the flow. The rest is for the next reader. */
function nextChunk(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const tryRead = () => {
      const chunk = socket.read() as Buffer | null;
      if (chunk === null && !socket.readableEnded && !socket.destroyed) return;
      socket.off("readable", tryRead).off("end", tryRead).off("close", tryRead).off("error", fail);
      if (chunk === null) fail(socket.errored ?? undefined);
      else resolve(chunk);
    };
    const fail = (cause?: Error) =>
      reject(
        cause instanceof NodeError
          ? cause
          : new NodeError("broken", "the node broke the connection", { cause }),
      );
    socket.on("readable", tryRead).on("end", tryRead).on("close", tryRead).on("error", fail);
    tryRead();
  });
}
