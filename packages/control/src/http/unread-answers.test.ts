import { type AddressInfo, connect, type Socket } from "node:net";
import { fastify } from "fastify";
import { afterEach, expect, test } from "vitest";
import { eventually } from "../../test-support/control.ts";
import { boundUnreadAnswers } from "./unread-answers.ts";

/** More than kernels keep for a socket. */
const ANSWER_BYTES = 24 * 1024 * 1024;
const PATIENCE_MS = 1_000;
const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

/** A server whose every answer is large, to the organisation that the path names. */
async function serve(orgBytes: number) {
  const server = fastify({ forceCloseConnections: true });
  server.addHook("onRequest", async (request) => {
    request.principal = { orgId: request.url } as never;
  });
  boundUnreadAnswers(server, { orgBytes, patienceMs: PATIENCE_MS });
  let answered = 0;
  server.addHook("onSend", async () => void answered++);
  server.get("/:org", async () => "x".repeat(ANSWER_BYTES));
  await server.listen({ host: "127.0.0.1", port: 0 });
  cleanups.push(() => server.close());
  const { port } = server.server.address() as AddressInfo;
  /** Asks, and reads nothing of the answer. */
  const ask = async (org: string): Promise<Socket> => {
    const before = answered;
    const socket = connect(port, "127.0.0.1").on("error", () => {});
    socket.pause();
    cleanups.push(() => socket.destroy());
    socket.write(`GET /${org} HTTP/1.1\r\nHost: x\r\n\r\n`);
    await eventually(() => expect(answered).toBe(before + 1));
    return socket;
  };
  const connections = () =>
    new Promise<number>((resolve) => server.server.getConnections((_error, count) => resolve(count)));
  return { ask, connections };
}

async function bytesOf(socket: Socket): Promise<number> {
  let bytes = 0;
  socket.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  socket.resume();
  await Promise.race([
    new Promise((resolve) => socket.once("close", resolve)),
    eventually(() => expect(bytes).toBeGreaterThan(ANSWER_BYTES)),
  ]);
  return bytes;
}

test("answers that nobody reads are let go, as many as it takes, once those of their organisation take too much together", async () => {
  const { ask, connections } = await serve(2 * ANSWER_BYTES);
  const other = await ask("other");
  for (let i = 0; i < 3; i++) await ask("one");
  // A busy process looks at all of them at once, before any that it lets go has closed.
  for (const since = performance.now(); performance.now() - since < 2 * PATIENCE_MS; );
  await eventually(async () => expect(await connections()).toBe(3));
  await new Promise((resolve) => setTimeout(resolve, 2 * PATIENCE_MS));
  expect(await connections()).toBe(3);
  expect(await bytesOf(other)).toBeGreaterThan(ANSWER_BYTES);
});

test("below that an answer waits for as long as its client likes", async () => {
  const { ask } = await serve(2 * ANSWER_BYTES);
  const [one, another] = [await ask("one"), await ask("one")];
  await new Promise((resolve) => setTimeout(resolve, 2 * PATIENCE_MS));
  for (const socket of [one, another]) expect(await bytesOf(socket)).toBeGreaterThan(ANSWER_BYTES);
});
