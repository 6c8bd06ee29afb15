import { createHash } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { type Duplex, PassThrough } from "node:stream";
import { Client } from "@vivarium/sdk";
import { expect, onTestFinished, test } from "vitest";
import { attach } from "./attach.ts";
import { parseDetachKey } from "./detach-key.ts";
import { takeTerminal } from "./own-terminal.ts";

const WEB_SOCKET_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/** Hands each request for a terminal to the test, which may answer it or not. */
async function serveTerminals(onRequest: (request: IncomingMessage, socket: Duplex) => void) {
  const server = createServer();
  const sockets = new Set<Duplex>();
  server.on("upgrade", (request, socket) => {
    sockets.add(socket.on("error", () => undefined));
    onRequest(request, socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const client = new Client({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
  return client.session("s1");
}

function accept(request: IncomingMessage, socket: Duplex): void {
  const key = createHash("sha1").update(`${request.headers["sec-websocket-key"]}${WEB_SOCKET_GUID}`);
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${key.digest("base64")}\r\n\r\n`,
  );
}

test("a human leaves a terminal also while a service that does not answer is asked for it again", async () => {
  const { promise: isAskedAgain, resolve: askAgain } = Promise.withResolvers<void>();
  let requests = 0;
  const session = await serveTerminals((request, socket) => {
    if (++requests > 1) return askAgain();
    accept(request, socket);
    setTimeout(() => socket.destroy(), 50);
  });
  const stdin = Object.assign(new PassThrough(), { setRawMode: () => stdin });
  const stdout = new PassThrough().resume();
  const own = { stdin, stdout } as unknown as Parameters<typeof takeTerminal>[0];
  const detachKey = parseDetachKey("ctrl-]");
  const ending = attach(session, { terminal: "shell", detachKey }, () => takeTerminal(own));
  await isAskedAgain;
  stdin.write("\u001d");
  expect(await ending).toEqual({ how: "left" });
});
