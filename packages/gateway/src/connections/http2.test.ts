/** HTTP/2 on both sides: streams in both directions, trailers, resets, and what a hostile guest may send. */
import { once } from "node:events";
import {
  type ClientHttp2Session,
  constants,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from "node:http2";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ask2,
  type BoundWorld,
  HOST,
  reportsOf,
  SECRET,
  startBoundWorld,
  valuesIn,
} from "../../test-support/bound-world.ts";
import { inTime, until } from "../../test-support/in-time.ts";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
let world: BoundWorld;
let old: BoundWorld;
let session: ClientHttp2Session;

beforeAll(async () => {
  world = await startBoundWorld("127.31.45");
  old = await startBoundWorld("127.31.46", { protocols: "http1" });
  await world.bind();
  await old.bind();
});

beforeEach(async () => {
  for (const { origin, reports, bound } of [world, old]) {
    bound.renewLease();
    origin.received.length = 0;
    origin.readsBody = true;
    origin.answer = (_request, response) => void response.end("ok");
    reports().length = 0;
  }
  session?.destroy();
  session = await world.session2();
});

afterAll(async () => {
  session.destroy();
  await world.close();
  await old.close();
});

const grpc = {
  ":method": "POST",
  ":path": "/pkg.Service/Call",
  "content-type": "application/grpc",
  te: "trailers",
};

/** Lets the origin answer with the stream itself. */
function onStream(serve: (stream: ServerHttp2Stream) => void): void {
  world.origin.readsBody = false;
  world.origin.answer = (_request, response) =>
    serve((response as unknown as { stream: ServerHttp2Stream }).stream);
}

describe("a call of gRPC", () => {
  test("gets its answer and its trailers", async () => {
    world.origin.answer = (_request, response) => {
      response.writeHead(200, { "content-type": "application/grpc" });
      response.addTrailers({ "grpc-status": "0", "grpc-message": "fine" });
      response.end("message");
    };
    const reply = await ask2(session, grpc, "request");
    expect(reply).toMatchObject({ status: 200, body: "message", isWhole: true });
    expect(reply.trailers).toMatchObject({ "grpc-status": "0", "grpc-message": "fine" });
    expect(valuesIn(world.origin.received[0] as never, "te")).toEqual(["trailers"]);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
  });

  test("that fails at once gets its status in the head, which ends the answer", async () => {
    onStream((stream) => stream.respond({ ":status": 200, "grpc-status": "7" }, { endStream: true }));
    const stream = session.request({ ...grpc, ":authority": HOST });
    const [headers, flags] = (await once(stream, "response")) as [IncomingHttpHeaders, number];
    expect(headers["grpc-status"]).toBe("7");
    expect(flags & constants.NGHTTP2_FLAG_END_STREAM).toBeTruthy();
    stream.destroy();
  });

  test("streams in both directions, message by message, many times", async () => {
    onStream((stream) => {
      stream.respond({ ":status": 200 });
      stream.on("data", (chunk) => stream.write(`echo ${chunk}`)).on("end", () => stream.end());
    });
    const stream = session.request({ ...grpc, ":authority": HOST });
    for (let round = 0; round < 50; round++) {
      // Ends like the beginning of the credential in some rounds.
      const message = `${round} ${SECRET.slice(0, round % 4)}`;
      stream.write(message);
      let heard = "";
      while (heard.length < `echo ${message}`.length) {
        const [chunk] = await inTime(once(stream, "data"), "an echo");
        heard += chunk;
      }
      expect(heard).toBe(`echo ${message}`);
    }
    stream.end();
    await once(stream, "close");
  });

  test("that the guest cancels is cancelled at the origin, and its upload does not look whole", async () => {
    let code: number | undefined;
    let isEnded = false;
    onStream((stream) => {
      const push = stream.push.bind(stream);
      stream.push = (chunk) => {
        if (chunk === null && !stream.closed) isEnded = true;
        return push(chunk);
      };
      stream.respond({ ":status": 200 });
      stream.on("error", () => {});
      stream.resume().once("close", () => {
        code = stream.rstCode;
      });
    });
    const cancelling = new AbortController();
    const stream = session.request({ ...grpc, ":authority": HOST }, { signal: cancelling.signal });
    stream.on("error", () => {});
    stream.write("part");
    await once(stream, "response");
    cancelling.abort();
    await until(() => code !== undefined);
    expect(code).toBe(constants.NGHTTP2_CANCEL);
    expect(isEnded).toBe(false);
  });

  test("that the origin resets is reset for the guest, and other streams continue", async () => {
    world.origin.readsBody = false;
    world.origin.answer = (request, response) => {
      const { stream } = response as unknown as { stream: ServerHttp2Stream };
      if (request.url !== "/reset") return void setTimeout(() => response.end("later"), 200);
      stream.respond({ ":status": 200 });
      stream.write("part", () => stream.destroy(new Error("reset")));
    };
    const later = ask2(session, { ":path": "/later" });
    expect(await ask2(session, { ":path": "/reset" })).toMatchObject({ status: 200, isWhole: false });
    expect(await later).toMatchObject({ status: 200, body: "later", isWhole: true });
  });
});

test("an answer that the origin breaks off without an error code is not whole for the guest", async () => {
  onStream((stream) => {
    stream.respond({ ":status": 200 });
    stream.write("part", () => setTimeout(() => resetWithoutCode(stream), 50));
  });
  expect(await ask2(session, {})).toMatchObject({ status: 200, body: "part", isWhole: false });
});

/** Sends RST_STREAM with NO_ERROR, without the end of the body. */
function resetWithoutCode(stream: ServerHttp2Stream): void {
  const handle = Object.getOwnPropertySymbols(stream).find((symbol) => String(symbol) === "Symbol(kHandle)");
  (stream as unknown as Record<symbol, { rstStream(code: number): void }>)[handle as symbol]?.rstStream(0);
}

test("many requests share one connection to the origin, each with the credential", async () => {
  const before = world.origin.connections;
  const replies = await Promise.all(
    Array.from({ length: 60 }, (_, at) => ask2(session, { ":path": `/n/${at}` })),
  );
  expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([200]));
  expect(world.origin.connections - before).toBe(1);
  expect(world.origin.received.every((request) => valuesIn(request, "authorization").length === 1)).toBe(
    true,
  );
});

test("an origin that ends its connection gets a new one with the next request", async () => {
  expect((await ask2(session, {})).status).toBe(200);
  for (const socket of world.origin.sockets) socket.destroy();
  await pause(50);
  expect((await ask2(session, {})).status).toBe(200);
});

describe("an origin with HTTP/1.1 alone serves a guest with HTTP/2", () => {
  test("with bodies, without bodies, and many at a time", async () => {
    const second = await old.session2();
    expect(
      await ask2(second, { ":method": "POST", "content-type": "a/b", cookie: ["a=1", "b=2"] }, "body"),
    ).toMatchObject({
      ...{ status: 200, body: "ok", isWhole: true },
    });
    const [received] = old.origin.received;
    expect(received).toMatchObject({ httpVersion: "1.1", body: "body" });
    expect(valuesIn(received as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
    expect(valuesIn(received as never, "cookie")).toEqual(["a=1; b=2"]);
    const replies = await Promise.all(
      Array.from({ length: 30 }, (_, at) => ask2(second, { ":path": `/n/${at}` })),
    );
    expect(new Set(replies.map(({ status, body }) => `${status} ${body}`))).toEqual(new Set(["200 ok"]));
    second.destroy();
  });

  test("and a broken upload does not look whole to it", async () => {
    const second = await old.session2();
    old.origin.readsBody = false;
    let isWhole: boolean | undefined;
    old.origin.answer = (request) => {
      request.resume().once("close", () => {
        isWhole = request.complete;
      });
    };
    const cancelling = new AbortController();
    const fields = { ":method": "POST", ":path": "/u", ":authority": HOST };
    const stream = second.request(fields, { signal: cancelling.signal });
    stream.on("error", () => {});
    stream.write("part");
    await until(() => old.origin.received.length === 1);
    cancelling.abort();
    await until(() => isWhole !== undefined);
    expect(isWhole).toBe(false);
    second.destroy();
  });
});

test("a guest opens a limited number of connections to an origin with HTTP/1.1, and gets 502 for more", async () => {
  const other = await startBoundWorld("127.31.60", { protocols: "http1", limits: { dialled: 40 } });
  await other.bind();
  other.origin.answer = () => {};
  const sessions = await Promise.all([other.session2(), other.session2()]);
  const asked = sessions.flatMap((one) => Array.from({ length: 30 }, () => ask2(one, {})));
  const statuses: number[] = [];
  for (const one of asked) void one.then(({ status }) => statuses.push(status));
  await until(() => statuses.length === 20 && other.origin.received.length === 40);
  expect(new Set(statuses)).toEqual(new Set([502]));
  const failed = await reportsOf(other, 20);
  expect(new Set(failed.map(({ is_sent }) => is_sent))).toEqual(new Set([false]));
  expect(other.origin.connections).toBe(40);
  for (const one of sessions) one.destroy();
  await Promise.all(asked);
  const all = await reportsOf(other, 60);
  expect(all.filter(({ is_sent }) => is_sent)).toHaveLength(40);
  other.origin.answer = (_request, response) => void response.end("ok");
  await until(() => other.origin.sockets.size === 0);
  expect((await other.ask()).status).toBe(200);
  await other.close();
});

describe("a request over HTTP/2 is refused, and nothing reaches the origin,", () => {
  test.each<[string, Record<string, string>, number]>([
    ["for another authority", { ":authority": "evil.example" }, 400],
    ["with a Host that differs", { host: "evil.example" }, 400],
    ["for another port", { ":authority": `${HOST}:8443` }, 400],
    ["with dot segments", { ":path": "/a/../b" }, 400],
    ["with an escaped slash", { ":path": "/a%2Fb" }, 400],
    ["with TRACE", { ":method": "TRACE" }, 400],
    ["with a lower-case method", { ":method": "get" }, 403],
    ["with a method that is not allowed", { ":method": "PATCH" }, 403],
    ["with headers that are too long", { "x-long": "x".repeat(20_000) }, 400],
  ])("%s", async (_, headers, status) => {
    expect((await ask2(session, headers)).status).toBe(status);
    expect(world.origin.received).toEqual([]);
    expect((await ask2(session, {})).status).toBe(200);
    expect(world.origin.received).toHaveLength(1);
  });

  test("without an authority: its stream is reset", async () => {
    const { status, rstCode } = await ask2(session, { ":authority": "" });
    expect(status).toBe(0);
    expect(rstCode).not.toBe(0);
    expect(world.origin.received).toEqual([]);
  });

  test("and its body is not waited for", async () => {
    const stream = session.request({ ":method": "PATCH", ":path": "/a", ":authority": HOST });
    stream.on("error", () => {}).resume();
    const timer = setInterval(() => stream.writable && stream.write("more"), 5);
    await inTime(once(stream, "close"), "the end of a stream");
    clearInterval(timer);
    expect(await reportsOf(world, 1)).toMatchObject([{ event: "denied", code: "connection_rule_denied" }]);
  });
});

describe("refused requests of a guest that takes no answers", () => {
  /** Sends refused requests with a body each, and counts those that are over. */
  async function refuseMany(to: BoundWorld, count: number): Promise<{ over: () => number; end: () => void }> {
    const deaf = await to.session2of(HOST, { initialWindowSize: 0 });
    let over = 0;
    let heads = 0;
    for (let at = 0; at < count; at++) {
      const stream = deaf.request({ ":method": "PATCH", ":path": "/a", ":authority": HOST });
      stream.on("error", () => {}).once("close", () => over++);
      stream.once("response", () => heads++);
      stream.write(Buffer.alloc(60_000));
    }
    await until(() => heads === count);
    return { over: () => over, end: () => deaf.destroy() };
  }

  test("are at most 256 of a session: the oldest are reset", async () => {
    const other = await startBoundWorld("127.31.58", { limits: { refusalMs: 600_000 } });
    await other.bind();
    const deaf: Awaited<ReturnType<typeof refuseMany>>[] = [];
    for (let at = 0; at < 5; at++) deaf.push(await refuseMany(other, 60));
    await until(() => deaf[0]?.over() === 5 * 60 - 256);
    other.bound.renewLease();
    expect((await other.ask()).status).toBe(200);
    expect(deaf.map(({ over }) => over())).toEqual([44, 0, 0, 0, 0]);
    for (const { end } of deaf) end();
    await other.close();
  });

  test("are reset after a time", async () => {
    const other = await startBoundWorld("127.31.59", { limits: { refusalMs: 300 } });
    await other.bind();
    const { over, end } = await refuseMany(other, 6);
    await until(() => over() === 6);
    end();
    await other.close();
  });

  test("while one that takes them gets every answer whole", async () => {
    const replies = await Promise.all(
      Array.from({ length: 60 }, () => ask2(session, { ":method": "PATCH" }, "body")),
    );
    expect(replies.every(({ status, body: text }) => status === 403 && text.includes("rule_denied"))).toBe(
      true,
    );
  });
});

test("a body in many tiny pieces to an origin that does not read takes bounded memory", async () => {
  world.origin.readsBody = false;
  world.origin.answer = () => {};
  const before = process.memoryUsage().heapUsed;
  const streams = Array.from({ length: 8 }, () => {
    const stream = session.request({ ":method": "POST", ":path": "/slow", ":authority": HOST });
    return stream.on("error", () => {});
  });
  for (let at = 0; at < 30_000; at++) {
    for (const stream of streams) if (stream.writable && !stream.destroyed) stream.write("x");
    if (at % 1_000 === 0) await pause(1);
  }
  await pause(500);
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(200 * 1024 * 1024);
  for (const stream of streams) stream.destroy();
});
