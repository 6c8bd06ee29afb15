/** Answers that carry the credential back: the guest never gets it. */
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import {
  brotliCompressSync,
  constants,
  createGzip,
  createZstdCompress,
  deflateSync,
  gzipSync,
  zstdCompressSync,
} from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ask2,
  type BoundWorld,
  HOST,
  type Reply,
  reportsOf,
  SECRET,
  startBoundWorld,
} from "../../test-support/bound-world.ts";
import { inTime, until } from "../../test-support/in-time.ts";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
let world: BoundWorld;
let generation = 1;

beforeAll(async () => {
  world = await startBoundWorld("127.31.42");
});

beforeEach(async () => {
  generation += 1;
  await world.bind({ generation });
  world.origin.received.length = 0;
  await pause(30);
  world.reports().length = 0;
});

afterAll(() => world.close());

const answering = (answer: (response: ServerResponse) => unknown) => {
  world.origin.answer = (_request, response) => void answer(response);
};

describe("a body with the credential is cut before it, and the connection ends:", () => {
  test.each<[string, string]>([
    ["as it is", SECRET],
    ["as the whole header", `Authorization: Bearer ${SECRET}`],
    ["in base64", Buffer.from(`x${SECRET}`).toString("base64")],
    ["in base64url", Buffer.from(`user:${SECRET}`).toString("base64url")],
    ["percent-escaped", encodeURIComponent(SECRET)],
    ["in JSON", JSON.stringify({ headers: { authorization: `Bearer ${SECRET}` } })],
  ])("%s", async (_, form) => {
    const text = `before the form ${form} behind the form`;
    for (const length of [undefined, Buffer.byteLength(text)]) {
      answering((response) => {
        if (length !== undefined) response.setHeader("Content-Length", length);
        response.end(text);
      });
      generation += 1;
      await world.bind({ generation });
      const reply = await world.ask();
      expect(reply).toMatchObject({ status: 200, isWhole: false });
      expect(text.startsWith(reply.body)).toBe(true);
      expect(reply.body).toContain("before the form");
      expect(reply.body).not.toContain(form.slice(-10));
      expect(reply.body.length).toBeLessThan("before the form ".length + 40);
      const session = await world.session2();
      const second = await ask2(session, {});
      expect(second.isWhole).toBe(false);
      expect(second.body).not.toContain(form.slice(-10));
    }
    expect(world.reports().filter(({ event }) => event === "reflected").length).toBeGreaterThanOrEqual(4);
  });

  test("also when it comes byte by byte, and slowly", async () => {
    answering(async (response) => {
      for (const byte of `before ${SECRET} behind`) {
        response.write(byte);
        await pause(25);
      }
      response.end();
    });
    const reply = await world.ask();
    expect(reply.isWhole).toBe(false);
    expect(reply.body.length).toBeLessThanOrEqual("before ".length + 8);
  });

  test("but a body without it passes whole, with its beginning alone as well", async () => {
    const text = `${SECRET.slice(0, -1)} ${"x".repeat(200_000)} ${SECRET.slice(1)} ${SECRET.slice(0, 9)}`;
    answering((response) => response.end(text));
    expect(await world.ask()).toMatchObject({ status: 200, isWhole: true, body: text });
    expect((await reportsOf(world, 1)).map(({ event }) => event)).toEqual(["used"]);
  });
});

describe("a header with the credential is dropped, and the others pass", () => {
  test("at the head of an answer", async () => {
    answering((response) => {
      response.setHeader("X-Echo", `Bearer ${SECRET}`);
      response.setHeader("X-Base64", Buffer.from(`user:${SECRET}`).toString("base64"));
      response.setHeader("Location", `https://other.example/?token=${encodeURIComponent(SECRET)}`);
      response.setHeader("Set-Cookie", ["a=b", `t=${SECRET}`]);
      response.writeHead(302, { "X-Other": "1" }).end("moved");
    });
    const reply = await world.ask();
    expect(reply).toMatchObject({ status: 302, isWhole: true, body: "moved" });
    expect(reply.headers).toMatchObject({ "x-other": "1", "set-cookie": ["a=b"] });
    for (const name of ["x-echo", "x-base64", "location"]) expect(reply.headers[name], name).toBeUndefined();
    expect((await reportsOf(world, 2)).map(({ event }) => event)).toEqual(["reflected", "used"]);
  });

  test("in trailers, of both versions of HTTP", async () => {
    answering((response) => {
      response.writeHead(200, { Trailer: "X-Echo, X-Other" });
      response.write("body");
      response.addTrailers({ "X-Echo": SECRET, "X-Other": "1" });
      response.end();
    });
    const reply = await world.ask();
    expect(reply).toMatchObject({ isWhole: true, body: "body", trailers: { "x-other": "1" } });
    expect(reply.trailers["x-echo"]).toBeUndefined();
    const session = await world.session2();
    const second = await ask2(session, {});
    expect(second).toMatchObject({ isWhole: true, body: "body", trailers: { "x-other": "1" } });
    expect(second.trailers["x-echo"]).toBeUndefined();
    session.destroy();
  });
});

test("the third answer with the credential suspends the Connection, until it is replaced", async () => {
  answering((response) => response.writeHead(200, { "X-Echo": SECRET }).end("ok"));
  for (let round = 0; round < 2; round++) expect((await world.ask()).status).toBe(200);
  await world.ask().catch(() => {});
  const refused = await world.ask();
  expect(refused.status).toBe(403);
  expect(JSON.parse(refused.body)).toMatchObject({ code: "connection_suspended" });
  expect(world.origin.received).toHaveLength(3);
  const reports = await reportsOf(world, 4);
  expect(reports.filter(({ event }) => event === "reflected")).toHaveLength(3);
  expect(JSON.stringify(reports)).not.toContain(SECRET);
  generation += 1;
  await world.bind({ generation });
  answering((response) => response.end("ok"));
  expect((await world.ask()).status).toBe(200);
});

/** A frame with a window of this size: its length is not announced, so the window stays as large. */
async function inZstd(text: string, bits: number): Promise<Buffer> {
  const encoder = createZstdCompress({ params: { [constants.ZSTD_c_windowLog]: bits } });
  encoder.write(text.slice(0, 10));
  encoder.end(text.slice(10));
  return Buffer.concat(await encoder.toArray());
}

describe("a body in a coding that was not asked for", () => {
  const text = JSON.stringify({ before: "x".repeat(10_000), echo: SECRET });
  const clean = JSON.stringify({ before: "x".repeat(10_000), echo: "nothing" });
  test.each<[string, (plain: string) => Buffer]>([
    ["gzip", (plain) => gzipSync(plain)],
    ["br", (plain) => brotliCompressSync(plain)],
    ["deflate", (plain) => deflateSync(plain)],
    ["zstd", (plain) => zstdCompressSync(plain)],
  ])("is decoded and searched: %s", async (coding, encode) => {
    const send = (plain: string) => (response: ServerResponse) => {
      response.writeHead(200, { "Content-Encoding": coding, "Content-Length": encode(plain).length });
      response.end(encode(plain));
    };
    answering(send(clean));
    const whole = await world.ask();
    expect(whole).toMatchObject({ status: 200, isWhole: true, body: clean });
    expect(whole.headers["content-encoding"]).toBeUndefined();
    answering(send(text));
    const cut = await world.ask();
    expect(cut.isWhole).toBe(false);
    expect(cut.body).not.toContain(SECRET.slice(0, 12));
  });

  test.each([
    { bits: 23, isWhole: true },
    { bits: 24, isWhole: false },
    { bits: 27, isWhole: false },
  ])("in zstd with a window of $bits bits is whole for the guest: $isWhole", async ({ bits, isWhole }) => {
    const encoded = await inZstd(clean, bits);
    answering((response) => response.writeHead(200, { "Content-Encoding": "zstd" }).end(encoded));
    const reply = await world.ask();
    expect(reply).toMatchObject({ status: 200, isWhole, body: isWhole ? clean : "" });
    expect(await reportsOf(world, 1)).toMatchObject([{ event: isWhole ? "used" : "failed" }]);
  });

  test("in brotli with a window beyond that of the web is cut off", async () => {
    const params = { [constants.BROTLI_PARAM_LARGE_WINDOW]: 1, [constants.BROTLI_PARAM_LGWIN]: 30 };
    const encoded = brotliCompressSync(clean, { params });
    answering((response) => response.writeHead(200, { "Content-Encoding": "br" }).end(encoded));
    expect(await world.ask()).toMatchObject({ status: 200, isWhole: false, body: "" });
  });

  test("waits while a session's other answers take the memory for decoding, and gets it when one ends", async () => {
    const endless: ServerResponse[] = [];
    const encoded = brotliCompressSync(clean);
    world.origin.answer = (request, response) => {
      const head = response.writeHead(200, { "Content-Encoding": "br" });
      if (request.url !== "/endless") return void head.end(encoded);
      head.write(encoded.subarray(0, 1));
      endless.push(response);
    };
    const session = await world.session2();
    for (let at = 0; at < 4; at++) {
      const stream = session.request({ ":path": "/endless", ":authority": HOST });
      stream.on("error", () => {}).resume();
      await inTime(once(stream, "response"), "the head of an answer");
    }
    let reply: Reply | undefined;
    const coming = ask2(session, { ":path": "/waits" }).then((received) => {
      reply = received;
    });
    await until(() => world.origin.received.some(({ url }) => url === "/waits"));
    for (let at = 0; at < 3; at++)
      expect(await ask2(session, { ":path": "/plain", ":method": "PATCH" })).toMatchObject({ status: 403 });
    expect(reply).toBeUndefined();
    endless[0]?.destroy();
    await inTime(coming, "an answer");
    expect(reply).toMatchObject({ status: 200, isWhole: true, body: clean });
    session.destroy();
  });

  test("that nobody can read is passed on, and reported as not searched", async () => {
    answering((response) => response.writeHead(200, { "Content-Encoding": "odd" }).end("abc"));
    expect(await world.ask()).toMatchObject({ isWhole: true, body: "abc" });
    expect(await reportsOf(world, 1)).toMatchObject([{ event: "used", is_unscanned: true }]);
  });

  test("that grows out of proportion is cut off, and takes little memory", async () => {
    answering(async (response) => {
      response.writeHead(200, { "Content-Encoding": "gzip" });
      const gzip = createGzip({ level: 9 });
      gzip.on("error", () => {}).pipe(response);
      const zeros = Buffer.alloc(1024 * 1024);
      for (let at = 0; at < 1024 && !response.destroyed; at++) {
        if (!gzip.write(zeros))
          await Promise.race([new Promise((resolve) => gzip.once("drain", resolve)), pause(5_000)]);
      }
      gzip.end();
    });
    const before = process.memoryUsage.rss();
    const socket = await world.open();
    let bytes = 0;
    socket.on("data", (chunk) => {
      bytes += chunk.length;
    });
    socket.write("GET /bomb HTTP/1.1\r\nHost: api.example\r\n\r\n");
    await inTime(
      new Promise((resolve) => socket.once("close", resolve)),
      "the end of the connection",
      120_000,
    );
    expect(bytes).toBeGreaterThan(32 * 1024 * 1024);
    expect(bytes).toBeLessThan(80 * 1024 * 1024);
    expect(process.memoryUsage.rss() - before).toBeLessThan(300 * 1024 * 1024);
    expect(await reportsOf(world, 1)).toMatchObject([{ event: "failed" }]);
  });
});

test("a message that ends like the beginning of the credential arrives while the origin waits", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  answering(async (response) => {
    response.write(`data: ${SECRET.slice(0, 3)}`);
    await promise;
    response.end();
  });
  const socket = await world.open();
  let heard = "";
  socket.on("data", (chunk) => {
    heard += chunk;
  });
  socket.write("GET /stream HTTP/1.1\r\nHost: api.example\r\n\r\n");
  await until(() => /data: [\s\S]*sk-/.test(heard.replace(/\r\n\w+\r\n/g, "")));
  expect(heard).toContain("sk-");
  resolve();
  socket.destroy();
});
