/** An agent for tests: answers the resync on a unix socket, then serves HTTP/2 with the given handler. */
import { mkdtemp, rm } from "node:fs/promises";
import {
  createServer as createHttp2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
} from "node:http2";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { readyLine } from "@vivarium/contract/guest";

export interface ScriptedAgent {
  socketPath: string;
  connections: () => number;
  close(): Promise<void>;
}

export async function startScriptedAgent(script: {
  /** Sent on every connection before READY, as a load may leave bytes in the port. */
  garbage?: Buffer;
  /** False: the agent never answers HELLO. */
  answersHello?: boolean;
  handle?: (request: Http2ServerRequest, response: Http2ServerResponse) => void;
}): Promise<ScriptedAgent> {
  const dir = await mkdtemp(path.join(tmpdir(), "agent-"));
  const socketPath = path.join(dir, "agent.sock");
  const http2 = createHttp2Server(script.handle ?? ((_request, response) => response.end("{}")));
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on("error", () => {});
    if (script.garbage) socket.write(script.garbage);
    if (script.answersHello === false) return socket.resume();
    answerHello(socket, () => http2.emit("connection", socket));
    return socket;
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    connections: () => connections,
    async close() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Answers once per nonce, and skips repeated HELLO lines before the HTTP/2 preface. */
function answerHello(socket: Socket, onReady: () => void): void {
  let seen = "";
  let answered = "";
  const onData = (chunk: Buffer) => {
    seen += chunk.toString("latin1");
    for (const [, nonce] of seen.matchAll(/HELLO ([0-9a-f]{32})\n/g)) {
      if (nonce && nonce !== answered) {
        answered = nonce;
        socket.write(readyLine(nonce));
      }
    }
    const preface = seen.indexOf("PRI * HTTP/2.0");
    if (preface < 0) return;
    socket.off("data", onData);
    socket.pause();
    socket.unshift(Buffer.from(seen.slice(preface), "latin1"));
    onReady();
  };
  socket.on("data", onData);
}
