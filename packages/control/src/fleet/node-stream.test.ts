import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Duplex } from "node:stream";
import { encodeOpening, OpeningReader } from "@vivarium/contract/node";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, beforeEach, expect, test } from "vitest";
import { NodeError } from "./node-error.ts";
import { openNodeStream } from "./node-stream.ts";

const SPEC = { env: { A: "1" }, rows: 24, cols: 80 };
let folder: string;
let socketPath: string;
let server: Server;
let sockets: Duplex[];
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), "node-stream-"));
  socketPath = path.join(folder, "node.sock");
  sockets = [];
  server = createServer((_request, response) => {
    response.writeHead(404).end(JSON.stringify({ code: "machine_not_found", message: "none" }));
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await new Promise((resolve) => server.close(resolve));
  rmSync(folder, { recursive: true });
});

function answerWith(serve: (socket: Duplex, head: Buffer) => void): void {
  server.on("upgrade", (_request, socket: Duplex, head: Buffer) => {
    sockets.push(socket);
    socket.on("error", () => {});
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: vivarium-stream\r\n\r\n",
    );
    serve(socket, head);
  });
}

const open = (signal = AbortSignal.timeout(5_000 * SLOWNESS)) =>
  openNodeStream({ socketPath, path: "/v1/machines/x-1/terminals", spec: SPEC, signal });
const failure = (opening: Promise<unknown>) =>
  opening.then(
    () => "opened",
    (error: unknown) => (error instanceof NodeError ? [error.failure, error.code] : error),
  );

test("the node gets the spec first, and bytes right after its own answer are the stream's", async () => {
  const said = Promise.withResolvers<unknown>();
  answerWith((socket) => {
    const reader = new OpeningReader();
    socket.on("data", (chunk: Buffer) => {
      const opening = reader.push(chunk);
      if (!opening) return;
      said.resolve(opening.value);
      socket.end(Buffer.concat([encodeOpening({}), Buffer.from("first bytes")]));
    });
  });
  const stream = await open();
  expect(await said.promise).toEqual(SPEC);
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  expect(Buffer.concat(chunks).toString()).toBe("first bytes");
});

test("a node's answer that comes byte by byte is read whole", async () => {
  answerWith((socket) => {
    const bytes = encodeOpening({ code: "terminal_limit", message: "sixteen" });
    for (const [index, byte] of bytes.entries()) setTimeout(() => socket.write(Buffer.of(byte)), index * 2);
  });
  expect(await failure(open())).toEqual(["refused", "terminal_limit"]);
});

test.each([
  ["a code that is not of the contract", encodeOpening({ code: "what" })],
  ["something else than an object", Buffer.from([0, 0, 0, 1, 0x31])],
  ["no JSON", Buffer.from([0, 0, 0, 1, 0x7b])],
  ["a length over the limit", Buffer.from([0xff, 0xff, 0xff, 0xff])],
])("%s is garbled", async (_title, bytes) => {
  answerWith((socket) => socket.write(bytes));
  expect(await failure(open())).toEqual(["garbled", undefined]);
});

test.each([
  ["ends", (socket: Duplex) => socket.end()],
  ["breaks off", (socket: Duplex) => socket.destroy()],
  ["ends within its word", (socket: Duplex) => socket.end(encodeOpening({}).subarray(0, 5))],
])("a node that %s before its word is broken", async (_title, fault) => {
  answerWith(fault);
  expect(await failure(open())).toEqual(["broken", undefined]);
});

test("a refusal of the upgrade is one of the node's answers", async () => {
  expect(await failure(open())).toEqual(["refused", "machine_not_found"]);
});

test("a node that is away is unreachable", async () => {
  const opening = openNodeStream({
    socketPath: `${socketPath}-none`,
    path: "/",
    spec: SPEC,
    signal: AbortSignal.timeout(5_000 * SLOWNESS),
  });
  expect(await failure(opening)).toEqual(["unreachable", undefined]);
});

test("a call that is given up ends its connection, before and after the node's 101", async () => {
  expect(await failure(open(AbortSignal.abort()))).toEqual(["aborted", undefined]);
  const gone = Promise.withResolvers<void>();
  const giveUp = new AbortController();
  answerWith((socket) => {
    socket.resume();
    socket.once("end", () => gone.resolve());
    setTimeout(() => giveUp.abort(), 30);
  });
  expect(await failure(open(giveUp.signal))).toEqual(["aborted", undefined]);
  await gone.promise;
});
