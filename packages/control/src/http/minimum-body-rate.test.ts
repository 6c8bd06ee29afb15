import { once } from "node:events";
import { createServer, type IncomingMessage, request } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { type BodyRate, PacedBody, TOO_SLOW } from "@vivarium/http1/body-rate";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { fastify } from "fastify";
import { afterEach, expect, test } from "vitest";
import { giveUpSlowBodies } from "./minimum-body-rate.ts";

const FLOOR = { windowMs: 200, bytes: 1000 };
/** For bodies that keep to it: a process that is not run for a while is no slow client. */
const PATIENT = { windowMs: 1_500 * SLOWNESS, bytes: 1000 };
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** A request whose body the test writes, and what the server makes of it. */
async function paced(floor: BodyRate): Promise<{
  body: PacedBody;
  send: (bytes: number) => void;
  end: () => void;
  leave: () => void;
}> {
  const arrived = Promise.withResolvers<IncomingMessage>();
  const server = createServer((incoming) => arrived.resolve(incoming)).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo;
  const call = request({
    port,
    host: "127.0.0.1",
    method: "PUT",
    headers: { "transfer-encoding": "chunked" },
  });
  call.on("error", () => {});
  call.flushHeaders();
  closers.push(() => {
    call.destroy();
    server.closeAllConnections();
    server.close();
  });
  return {
    body: new PacedBody(await arrived.promise, floor),
    send: (bytes) => void call.write(Buffer.alloc(bytes)),
    end: () => void call.end(),
    leave: () => void call.destroy(),
  };
}

async function sizeOf(body: PacedBody): Promise<number> {
  let size = 0;
  for await (const chunk of body) size += (chunk as Buffer).length;
  return size;
}

test("a body that keeps to the floor may take as long as it takes", async () => {
  const { body, send, end } = await paced(PATIENT);
  const size = sizeOf(body);
  for (let i = 0; i < 10; i++) {
    send(1500);
    await sleep(250 * SLOWNESS);
  }
  end();
  expect(await size).toBe(15_000);
});

test("a body that comes more slowly is given up", async () => {
  const { body, send } = await paced(FLOOR);
  const trickle = setInterval(() => send(10), 20);
  closers.push(() => clearInterval(trickle));
  await expect(sizeOf(body)).rejects.toThrow(
    /^request body: it arrives too slowly; at least 1000 bytes every 0.2 seconds/,
  );
});

test("a body that nobody reads is not given up, and is not taken into memory", async () => {
  const { body, send, end } = await paced(PATIENT);
  body.once("readable", () => {});
  for (let i = 0; i < 100; i++) send(100_000);
  await sleep(2_000 * SLOWNESS);
  expect(body.destroyed).toBe(false);
  expect(body.readableLength).toBeLessThan(1_000_000);
  body.removeAllListeners("readable");
  const size = sizeOf(body);
  end();
  expect(await size).toBe(10_000_000);
});

test("a client that leaves breaks the body off", async () => {
  const { body, send, leave } = await paced(PATIENT);
  send(100);
  const size = sizeOf(body);
  await sleep(20);
  leave();
  await expect(size).rejects.toMatchObject({ code: "ECONNRESET" });
});

/** A server whose bodies are read whole, and a request that sends its body as the test says. */
async function whole(
  floor: BodyRate,
  send: (write: (bytes: number) => void) => void | Promise<void>,
): Promise<{ refused: unknown[]; got: Promise<number> }> {
  const refused: unknown[] = [];
  const server = fastify({
    clientErrorHandler: (error, socket) => {
      refused.push(error.code);
      socket.end("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    },
  });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
  giveUpSlowBodies(server, floor);
  server.post("/", async (request) => String((request.body as Buffer).length));
  await server.listen({ host: "127.0.0.1", port: 0 });
  const { port } = server.server.address() as AddressInfo;
  const headers = { "transfer-encoding": "chunked", "content-type": "x/y" };
  const call = request({ port, host: "127.0.0.1", method: "POST", headers });
  const got = new Promise<number>((resolve) =>
    call.once("response", (response) => resolve(response.statusCode ?? 0)),
  );
  call.on("error", () => {});
  closers.push(() => {
    call.destroy();
    void server.close();
  });
  void send((bytes) => (bytes > 0 ? call.write(Buffer.alloc(bytes)) : call.end()));
  return { refused, got };
}

test("a JSON body that trickles is refused, one that keeps to the floor is not", async () => {
  let timer: NodeJS.Timeout | undefined;
  closers.push(() => clearInterval(timer));
  const slow = await whole(FLOOR, (write) => {
    timer = setInterval(() => write(10), 20);
  });
  expect(await slow.got).toBe(400);
  expect(slow.refused).toEqual([TOO_SLOW]);
  const fast = await whole(PATIENT, async (write) => {
    for (let i = 0; i < 10; i++) {
      write(1500);
      await sleep(250 * SLOWNESS);
    }
    write(0);
  });
  expect([await fast.got, fast.refused]).toEqual([200, []]);
});

/** A connection whose request for a route that reads its body itself was answered before any of it had come. */
async function answeredEarly(closing: { ms: number; inAllMs: number }, bodyBytes: number): Promise<Socket> {
  const server = fastify();
  server.removeAllContentTypeParsers();
  server.addContentTypeParser("*", (_request, _body, done) => done(null));
  giveUpSlowBodies(server, PATIENT, { ...closing, bytes: 0 });
  server.put("/", { config: { takesRawBody: true } }, async () => "early");
  await server.listen({ host: "127.0.0.1", port: 0 });
  const client = connect((server.server.address() as AddressInfo).port, "127.0.0.1");
  client.on("error", () => {});
  closers.push(() => {
    client.destroy();
    void server.close();
  });
  client.write(`PUT / HTTP/1.1\r\nhost: x\r\ncontent-type: x/y\r\ncontent-length: ${bodyBytes}\r\n\r\n`);
  await once(client, "data");
  return client;
}

test("a client that was answered early may send the rest, however this process stalls meanwhile", async () => {
  const client = await answeredEarly({ ms: 400, inAllMs: 60_000 }, 2);
  for (let stall = 0; stall < 2; stall++) {
    // It is in the system's hands before the process stalls.
    client.write("x");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 450);
    await nextTurn();
    await nextTurn();
  }
  client.write("PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
  const [answer] = await once(client, "data");
  expect(String(answer)).toMatch(/^HTTP\/1\.1 200 /);
});

/** Also with a reset, where bytes were on their way: that is an error, and `once` rejects on it. */
const cutOff = (client: Socket) => new Promise((resolve) => client.once("close", resolve));

test("a client that was answered early and sends no more is cut off", async () => {
  const client = await answeredEarly({ ms: 50, inAllMs: 60_000 }, 3);
  await cutOff(client);
});

test("a client that was answered early and sends on for ever is cut off", async () => {
  const client = await answeredEarly({ ms: 60_000, inAllMs: 200 }, 1_000_000);
  const drip = setInterval(() => client.write("x"), 10);
  closers.push(() => clearInterval(drip));
  await cutOff(client);
});
