import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { pipelineOf } from "./pipelining.ts";
import { responseOver } from "./upgrade.ts";

test("an upgrade behind a request that is not answered gets no response; one alone gets an ordinary one", async () => {
  const arrived = Promise.withResolvers<[IncomingMessage, ServerResponse]>();
  const server = createServer((...both) => arrived.resolve(both));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const heard = new Promise((resolve) =>
    get({ host: "127.0.0.1", port: (server.address() as AddressInfo).port }, (answer) =>
      resolve(answer.resume().statusCode),
    ),
  );
  const [request, first] = await arrived.promise;
  const { socket } = request;
  expect(pipelineOf(socket).add(first)).toBe(true);
  expect(() => expect(responseOver(socket, request)).toBeUndefined()).not.toThrow();
  const answered = new Promise<void>((resolve) => first.once("close", resolve));
  first.detachSocket(socket);
  first.emit("close");
  await answered;
  responseOver(socket, request)?.writeHead(404).end();
  expect(await heard).toBe(404);
  server.close();
});

test("a response over a released connection closes with it, as any response does", async () => {
  const server = createServer();
  const closed = new Promise<string>((resolve) => {
    server.on("upgrade", (request, socket) => {
      const response = responseOver(socket, request) as ServerResponse;
      const seen: string[] = [];
      response.once("finish", () => seen.push("finish"));
      response.once("close", () => seen.push("close"));
      socket.once("close", () => setImmediate(() => resolve(seen.join())));
      response.writeHead(404).end("no");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  get({ host: "127.0.0.1", port, headers: { connection: "upgrade", upgrade: "websocket" } }, (answer) =>
    answer.resume(),
  );
  expect(await closed).toBe("finish,close");
  server.close();
});
