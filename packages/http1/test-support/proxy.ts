/** The smallest door that can be made of this package: all requests are forwarded to one server. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { createLog, type Log } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { forward } from "../src/forward.ts";
import { listenGuarded } from "../src/guarded-server.ts";
import { type Header, headerPairs, withoutHopByHop } from "../src/headers.ts";
import { pipelineOf } from "../src/pipelining.ts";
import { findBadFraming, wantsWebSocket } from "../src/strict-request.ts";

export interface StrictProxy {
  port: number;
  close: () => Promise<void>;
}

const FOR_UPGRADE: Header[] = [
  ["Connection", "Upgrade"],
  ["Upgrade", "websocket"],
];
const BAD_REQUEST = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

export async function startProxy(
  serverPort: number,
  log: Log = createLog("proxy", "silent"),
): Promise<StrictProxy> {
  const proxy = createServer({ maxHeaderSize: 16 * 1024, shouldUpgradeCallback: wantsWebSocket });
  listenGuarded(proxy, log, {
    request: (request, response, upgrade) => answer({ serverPort, log }, request, response, upgrade),
    unreadable: (_, socket) => {
      if (!socket.writable || pipelineOf(socket).unanswered > 0) socket.destroy();
      else socket.end(BAD_REQUEST, () => socket.destroy());
    },
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  return {
    port: (proxy.address() as AddressInfo).port,
    close: async () => {
      const closed = new Promise((resolve) => proxy.close(resolve));
      proxy.closeAllConnections();
      await closed;
    },
  };
}

function answer(
  { serverPort, log }: { serverPort: number; log: Log },
  request: IncomingMessage,
  response: ServerResponse,
  upgrade?: { head: Buffer },
): void {
  const { socket, httpVersion, url = "" } = request;
  const headers = headerPairs(request.rawHeaders);
  if (!pipelineOf(socket).add(response)) socket.destroy();
  else if (findBadFraming(httpVersion, headers) !== undefined) refuse(response, 400);
  else {
    forward({
      ...{ request, response, log, path: url, upgrade },
      headers: [...withoutHopByHop(headers), ...(upgrade ? FOR_UPGRADE : [])],
      connection: { createConnection: () => connect(serverPort, "127.0.0.1") },
      onAnswer: ({ rawHeaders }) => withoutHopByHop(headerPairs(rawHeaders), ["transfer-encoding"]),
      onConsent: (server) => {
        server.pipe(socket).pipe(server);
        server.once("close", () => socket.destroySoon());
        socket.once("close", () => server.destroy());
      },
      fail: () => refuse(response, 502),
      cut: () => socket.destroy(),
    });
  }
}

function refuse(response: ServerResponse, status: number): void {
  if (response.headersSent) response.destroy();
  else response.writeHead(status, { Connection: "close", "Content-Length": 0 }).end();
}

/** Everything that is heard until the connection ends. */
export async function exchange(port: number, bytes: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  const heard: Buffer[] = [];
  const late = setTimeout(() => socket.destroy(new Error("late")), 15_000 * SLOWNESS);
  const error = await new Promise<Error | undefined>((resolve) => {
    socket.on("data", (chunk) => heard.push(chunk)).once("error", resolve);
    socket.once("close", () => resolve(undefined)).write(bytes, "latin1");
  });
  clearTimeout(late);
  if (error?.message === "late") throw new Error("the connection does not come to its end");
  return Buffer.concat(heard).toString("latin1");
}
