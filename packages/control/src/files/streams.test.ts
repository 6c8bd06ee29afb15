/** Upload and download of files of any size over a fake node and real connections. */
import { createHash, randomBytes } from "node:crypto";
import { Agent, type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { type GuestRequest, Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { type LoggedLine, recordingLog } from "../../test-support/recording-log.ts";
import { createApp } from "../app.ts";

const MIB = 2 ** 20;
let control: Control;
let id: string;
const agent = new Agent({ keepAlive: true });
beforeAll(async () => {
  control = await startControl();
  await control.app.server.listen({ host: "127.0.0.1", port: 0 });
  id = await control.createLive();
});
beforeEach(() => {
  control.node.guestCalls.length = 0;
  control.node.onGuest = take;
});
afterAll(async () => {
  agent.destroy();
  await control.close();
});

interface Got {
  status: number;
  headers: IncomingMessage["headers"];
  bytes: Buffer;
  /** Whether the answer was complete. */
  isWhole: boolean;
}

function call(
  method: string,
  path: string,
  {
    headers = {},
    body,
    session = id,
  }: { headers?: OutgoingHttpHeaders; body?: Readable | Buffer; session?: string } = {},
) {
  const { port } = control.app.server.server.address() as AddressInfo;
  const sent = request({
    host: "127.0.0.1",
    port,
    method,
    agent,
    path: `/v1/sessions/${session}/files/stream${path}`,
    headers: { authorization: `Bearer ${control.key}`, ...headers },
  });
  const got = new Promise<Got>((resolve, reject) => {
    sent.on("error", reject);
    sent.on("response", (response) => {
      const chunks: Buffer[] = [];
      const end = () =>
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          bytes: Buffer.concat(chunks),
          isWhole: response.complete,
        });
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.on("end", end);
      response.on("error", end);
    });
  });
  if (body instanceof Readable) body.pipe(sent);
  else if (body === undefined) sent.flushHeaders();
  else sent.end(body);
  return { sent, got };
}
const json = async (got: Promise<Got>) => {
  const { status, bytes } = await got;
  return { status, body: JSON.parse(bytes.toString()) };
};

async function take(guest: GuestRequest): Promise<void> {
  const hash = createHash("sha256");
  let size = 0;
  for await (const chunk of guest.request) {
    hash.update(chunk as Buffer);
    size += (chunk as Buffer).length;
  }
  guest.json({ bytes: size, sha256: hash.digest("hex"), duration_us: 1 });
}
const sha256 = (bytes: Buffer) => createHash("sha256").update(bytes).digest("hex");

/** Longer than the lease of the previous operation and the idle timeout's grace period. */
const untilPaused = (session: string) =>
  eventually(
    async () => expect((await control.ask(`GET /v1/sessions/${session}`)).body.state).toBe("paused"),
    30_000,
  );

describe("upload", () => {
  test.each([
    ["sized, with no content type", {}, false],
    ["chunked", { "content-type": "text/plain" }, true],
    ["with a content type that is none", { "content-type": "???" }, false],
    ["called JSON, which it is not", { "content-type": "application/json" }, false],
  ])("a body that is %s arrives as it is", async (_name, headers, isChunked) => {
    const bytes = randomBytes(3 * MIB + 17);
    const body = isChunked ? Readable.from([bytes.subarray(0, 1000), bytes.subarray(1000)]) : bytes;
    const length = isChunked ? {} : { "content-length": bytes.length };
    const { status, body: answer } = await json(
      call("PUT", "?path=a/b", { headers: { ...headers, ...length }, body }).got,
    );
    expect(status).toBe(200);
    expect(answer).toEqual({
      path: "a/b",
      bytes: bytes.length,
      sha256: sha256(bytes),
      duration_ms: expect.any(Number),
    });
    expect(control.node.guestCalls.map((guest) => [guest.call, guest.query])).toEqual([
      ["PUT files/write", { path: "a/b" }],
    ]);
  });

  test("an empty body makes an empty file, whether it has a length or not", async () => {
    for (const headers of [{ "content-length": 0 }, { "transfer-encoding": "chunked" }]) {
      const { status, body } = await json(call("PUT", "?path=e", { headers, body: Buffer.alloc(0) }).got);
      expect([status, body.bytes, body.sha256]).toEqual([200, 0, sha256(Buffer.alloc(0))]);
    }
  });

  test("a guest that does not read stops the client, and fills no memory", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = async (guest) => {
      await promise;
      await take(guest);
    };
    let sent = 0;
    const block = Buffer.alloc(64 * 1024, "x");
    const total = 64 * MIB;
    const source = new Readable({
      read() {
        sent += block.length;
        this.push(sent > total ? null : block);
      },
    });
    const upload = call("PUT", "?path=a", { headers: { "transfer-encoding": "chunked" }, body: source });
    const stopped = await eventually(async () => {
      const before = sent;
      await new Promise((done) => setTimeout(done, 200));
      if (sent !== before || sent === 0) throw new Error("still sending");
      return sent;
    });
    expect(stopped).toBeLessThan(24 * MIB);
    resolve();
    expect((await json(upload.got)).body.bytes).toBe(total);
  });

  test("a client that leaves breaks the call to the guest off, so that nothing stays", async () => {
    const outcome = Promise.withResolvers<unknown>();
    control.node.onGuest = async (guest) => {
      outcome.resolve(
        await guest.body().then(
          (bytes) => bytes.length,
          (error: Error) => error,
        ),
      );
    };
    const upload = call("PUT", "?path=a", { headers: { "content-length": 1000 } });
    upload.got.catch(() => {});
    upload.sent.write(Buffer.alloc(500));
    await eventually(() => expect(control.node.guestCalls).toHaveLength(1));
    upload.sent.destroy();
    expect(await outcome.promise).toBeInstanceOf(Error);
  });

  test("a client that leaves is no failure of the service", async () => {
    const logged: LoggedLine[] = [];
    const app = await createApp(control.settings, recordingLog(logged));
    await app.server.listen({ host: "127.0.0.1", port: 0 });
    const begun = Promise.withResolvers<void>();
    control.node.onGuest = async (guest) => {
      begun.resolve();
      await guest.body().catch(() => {});
    };
    const { port } = app.server.server.address() as AddressInfo;
    const headers = { authorization: `Bearer ${control.key}`, "content-length": 1000 };
    const upload = request({ port, method: "PUT", path: `/v1/sessions/${id}/files/stream?path=a`, headers });
    upload.on("error", () => {}).write(Buffer.alloc(500));
    await begun.promise;
    upload.destroy();
    await eventually(() =>
      expect(logged.map(({ text }) => text)).toContainEqual(expect.stringMatching(/left|closed before/)),
    );
    expect(logged.filter(({ level }) => level === "error")).toEqual([]);
    await app.close();
  });

  test("a refusal is sent while the client still sends, and its connection is not kept", async () => {
    control.node.onGuest = () => {
      throw new Refusal("is_a_directory");
    };
    const block = Buffer.alloc(64 * 1024);
    const endless = new Readable({
      read() {
        this.push(block);
      },
    });
    const upload = call("PUT", "?path=a", { headers: { "transfer-encoding": "chunked" }, body: endless });
    const { status, body } = await json(upload.got);
    expect([status, body]).toEqual([400, { error: "path: is a directory", code: "validation" }]);
    await eventually(() => expect(upload.sent.destroyed).toBe(true));
    endless.destroy();
  });

  test("a refusal of a small body leaves the connection usable", async () => {
    control.node.onGuest = async (guest) => {
      await guest.body();
      throw new Refusal("no_space");
    };
    const { status, body } = await json(call("PUT", "?path=a", { body: Buffer.from("x") }).got);
    expect([status, body]).toEqual([409, { error: "path: no space left on device", code: "conflict" }]);
    control.node.onGuest = take;
    expect((await json(call("PUT", "?path=a", { body: Buffer.from("x") }).got)).status).toBe(200);
  });

  test.each([
    ["", /^path: must be a string, got nothing$/],
    ["?path=/etc/x", /^path: path must be under \/workspace/],
    ["?path=a%00", /^path: must not contain a NUL/],
  ])("stream%s is refused before the session is looked up", async (query, message) => {
    const { status, body } = await json(
      call("PUT", query, { body: Buffer.from("x"), session: "f".repeat(21) }).got,
    );
    expect([status, body.code]).toEqual([400, "validation"]);
    expect(body.error).toMatch(message);
  });

  test("an upload to a paused session wakes it", async () => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    const { body } = await json(call("PUT", "?path=a", { body: Buffer.from("woken"), session: paused }).got);
    expect(body.bytes).toBe(5);
  });

  test("a client that leaves while its session is woken for it ends its own request alone", async () => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    const begun = Promise.withResolvers<void>();
    const over = Promise.withResolvers<void>();
    control.node.onStart = () => {
      begun.resolve();
      return over.promise;
    };
    const upload = call("PUT", "?path=a", { headers: { "content-length": 1000 }, session: paused });
    upload.got.catch(() => {});
    upload.sent.write(Buffer.alloc(500));
    await begun.promise;
    upload.sent.destroy();
    await new Promise((resolve) => setTimeout(resolve, 100));
    over.resolve();
    control.node.onStart = () => {};
    const { body } = await json(call("PUT", "?path=b", { body: Buffer.from("x"), session: paused }).got);
    expect(body.bytes).toBe(1);
    expect(control.node.guestCalls.map(({ query }) => query.path)).toContain("b");
  });

  test("an upload that meets a pause is not sent twice: the client may repeat it", async () => {
    const victim = await control.createLive();
    control.node.onGuest = async (guest) => {
      await guest.body();
      throw new Refusal("machine_held");
    };
    const { status, body } = await json(
      call("PUT", "?path=a", { body: Buffer.from("x"), session: victim }).got,
    );
    expect([status, body.code]).toEqual([409, "session_not_live"]);
    expect(control.node.guestCalls).toHaveLength(1);
  });

  test("an upload whose connection to the machine breaks is not called retryable", async () => {
    control.node.onGuest = async (guest) => {
      await guest.body();
      guest.breakOff();
    };
    const got = await call("PUT", "?path=a", { body: Buffer.from("x") }).got;
    expect([got.status, JSON.parse(got.bytes.toString()).code]).toEqual([500, "internal"]);
    expect(got.headers["retry-after"]).toBeUndefined();
  });

  test("a node that takes half of the body for the whole is not believed", async () => {
    control.node.onGuest = (guest) => {
      guest.json({ bytes: 1, sha256: "0".repeat(64), duration_us: 1 });
    };
    const upload = call("PUT", "?path=a", { headers: { "content-length": 1000 } });
    upload.sent.write("x");
    const { status, body } = await json(upload.got);
    expect([status, body.code]).toEqual([500, "internal"]);
    upload.sent.destroy();
  });
});

describe("download", () => {
  test("gives the bytes with their length, as octet-stream", async () => {
    const bytes = randomBytes(5 * MIB);
    control.node.onGuest = (guest) => guest.bytes(bytes);
    const got = await call("GET", "?path=big", {}).got;
    expect(got.status).toBe(200);
    expect(got.headers).toMatchObject({
      "content-type": "application/octet-stream",
      "content-length": String(bytes.length),
      "cache-control": "no-store",
      "x-request-id": expect.any(String),
    });
    expect(got.bytes.equals(bytes)).toBe(true);
    // No cap: the call to the guest has none.
    expect(control.node.guestCalls[0]?.query).toEqual({ path: "big" });
  });

  test("an empty file has length 0, and the connection is kept", async () => {
    control.node.onGuest = (guest) => guest.bytes(Buffer.alloc(0));
    for (let i = 0; i < 3; i++) {
      const got = await call("GET", "?path=e").got;
      expect([got.headers["content-length"], got.bytes.length, got.isWhole]).toEqual(["0", 0, true]);
    }
  });

  test.each([
    ["no_such_file", 404, "not_found", "path: no such file or directory"],
    ["is_a_directory", 400, "validation", "path: is a directory"],
    ["not_a_regular_file", 400, "validation", "path: not a regular file"],
  ] as const)("%s is an envelope before any byte", async (refusal, status, code, error) => {
    control.node.onGuest = () => {
      throw new Refusal(refusal);
    };
    const got = await call("GET", "?path=a").got;
    expect([got.status, JSON.parse(got.bytes.toString())]).toEqual([status, { error, code }]);
    expect(got.headers["content-type"]).toMatch(/^application\/json/);
  });

  test("a file that breaks off midway breaks the connection: never a short body with a clean end", async () => {
    control.node.onGuest = (guest) => {
      guest.response.writeHead(200, { "content-length": 1000 });
      guest.response.write(Buffer.alloc(400));
      setTimeout(() => guest.breakOff(), 50);
    };
    const got = await call("GET", "?path=a").got;
    expect([got.status, got.headers["content-length"], got.isWhole]).toEqual([200, "1000", false]);
    expect(got.bytes.length).toBeLessThan(1000);
  });

  test("an answer that does not say its length is 502", async () => {
    control.node.onGuest = (guest) => void guest.response.writeHead(200).end("x");
    const { status, body } = await json(call("GET", "?path=a").got);
    expect([status, body.code]).toEqual([502, "bad_gateway"]);
  });

  test("a client that leaves ends the work in the guest", async () => {
    control.node.onGuest = (guest) => {
      guest.response.writeHead(200, { "content-length": 100 * MIB });
      guest.response.write(Buffer.alloc(1000));
    };
    const download = call("GET", "?path=a");
    download.got.catch(() => {});
    await new Promise((resolve) => download.sent.once("response", resolve));
    download.sent.destroy();
    await control.node.guestCalls[0]?.gone;
  });

  test("a slow reader holds the guest back", async () => {
    let written = 0;
    control.node.onGuest = async (guest) => {
      guest.response.writeHead(200, { "content-length": 64 * MIB });
      for (; written < 64 * MIB; written += MIB) {
        if (!guest.response.write(Buffer.alloc(MIB))) {
          await new Promise((resolve) => guest.response.once("drain", resolve));
        }
      }
      guest.response.end();
    };
    const { port } = control.app.server.server.address() as AddressInfo;
    const path = `/v1/sessions/${id}/files/stream?path=a`;
    const headers = { authorization: `Bearer ${control.key}` };
    const sent = request({ host: "127.0.0.1", port, path, headers, agent: false }).end();
    const response = await new Promise<IncomingMessage>((resolve) => sent.once("response", resolve));
    response.pause();
    await eventually(async () => {
      const before = written;
      await new Promise((done) => setTimeout(done, 200));
      if (written !== before || written === 0) throw new Error("still writing");
    });
    expect(written).toBeLessThan(24 * MIB);
    let read = 0;
    for await (const chunk of response) read += (chunk as Buffer).length;
    expect(read).toBe(64 * MIB);
  });

  test("the session is not idle while a download is in flight", async () => {
    const lazy = await control.createLive({ idle_timeout_ms: 1 });
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = async (guest) => {
      guest.response.writeHead(200, { "content-length": 2 }).write("a");
      await promise;
      guest.response.end("b");
    };
    const download = call("GET", "?path=a", { session: lazy });
    await new Promise((done) => setTimeout(done, 3_500));
    expect((await control.ask(`GET /v1/sessions/${lazy}`)).body.state).toBe("live");
    resolve();
    expect((await download.got).bytes.toString()).toBe("ab");
    await untilPaused(lazy);
  });
});
