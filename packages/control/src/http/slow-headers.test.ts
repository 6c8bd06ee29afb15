/** Clients whose headers come a byte at a time, without end, or in masses. Others are answered meanwhile. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { NODE_SERVER_OPTIONS } from "./unroutable.ts";

let control: Control;
let port: number;
beforeAll(async () => {
  control = await startControl();
  const { server } = control.app;
  port = Number(new URL(await server.listen({ host: "127.0.0.1", port: 0 })).port);
});
afterAll(() => control.close());

async function open(): Promise<{ socket: Socket; answer: Promise<string> }> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  const chunks: Buffer[] = [];
  socket.on("error", () => {}).on("data", (chunk) => chunks.push(chunk));
  const answer = once(socket, "close").then(() => Buffer.concat(chunks).toString());
  return { socket, answer };
}

const head = () => `GET /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${control.key}\r\n`;

test("a client has at most 35 seconds for its headers", () => {
  const { headersTimeout, connectionsCheckingInterval } = NODE_SERVER_OPTIONS;
  expect(control.app.server.server.headersTimeout).toBe(headersTimeout);
  expect(headersTimeout + connectionsCheckingInterval).toBeLessThanOrEqual(35_000);
});

test("headers that come a byte at a time are cut off after their time, and other clients are answered", async () => {
  const nodeServer = control.app.server.server;
  const before = nodeServer.headersTimeout;
  nodeServer.headersTimeout = 500;
  try {
    const slow = await Promise.all(Array.from({ length: 20 }, open));
    for (const { socket } of slow) socket.write(head());
    const timer = setInterval(() => {
      for (const { socket } of slow) if (socket.writable) socket.write("x");
    }, 50);
    const other = await open();
    other.socket.write(`${head()}Connection: close\r\n\r\n`);
    expect(await other.answer).toMatch(/^HTTP\/1.1 200 /);
    for (const { answer } of slow) {
      const text = await answer;
      expect(text).toMatch(/^HTTP\/1.1 400 /);
      expect(text).toContain("the headers must arrive within");
    }
    clearInterval(timer);
  } finally {
    nodeServer.headersTimeout = before;
  }
});

test.each([
  ["ten thousand headers", () => `${head()}${"X-A: b\r\n".repeat(10_000)}\r\n`],
  ["an address of 64 KiB", () => `GET /v1/${"a".repeat(65_536)} HTTP/1.1\r\nHost: x\r\n\r\n`],
  ["one header of 64 KiB", () => `${head()}X-A: ${"b".repeat(65_536)}\r\n\r\n`],
])("%s are refused, and the connection is closed", async (_, request) => {
  const { socket, answer } = await open();
  socket.write(request());
  expect(await answer).toMatch(/^HTTP\/1.1 400 [\s\S]*"code":"validation"/);
});
