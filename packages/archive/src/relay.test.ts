import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  type ClientRequest,
  createServer,
  type IncomingMessage,
  request,
  type ServerResponse,
} from "node:http";
import { PassThrough, Readable, Writable } from "node:stream";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { testArchive } from "../test-support/contract.ts";
import { newKey, Place, readFolder, WINDOW } from "../test-support/folders.ts";
import type { ChunkStore } from "./chunk-store.ts";
import { BrokenRelay, readFrames, TYPES, writeFrame } from "./frames.ts";
import { packFolder } from "./pack.ts";
import { RelayedChunks } from "./relayed-chunks.ts";
import { serveChunks } from "./serve-chunks.ts";
import { unpackFolder } from "./unpack.ts";

const place = new Place();
const objects = await place.objects;
afterAll(() => place[Symbol.dispose]());

const NAME = "ab".repeat(32);
const EMPTY: ChunkStore = {
  names: async function* () {},
  put: async () => undefined,
  get: async () => Buffer.alloc(0),
};

/** A store behind two streams in this process. */
function relayed(store: ChunkStore) {
  const [asks, answers] = [new PassThrough(), new PassThrough()];
  const served = serveChunks(store, asks, answers);
  served.catch(() => undefined);
  return { asks, answers, served, chunks: new RelayedChunks(asks, answers) };
}

/** Serves what a raw sender asks, and returns how that ends. */
async function servedRaw(bytes: (to: Writable) => Promise<void> | void, store = EMPTY) {
  const asks = new PassThrough();
  const served = serveChunks(store, asks, new PassThrough().resume());
  served.catch(() => undefined);
  await bytes(asks);
  asks.end();
  return await served;
}

describe("archives through a relay", () => {
  testArchive(
    () => objects,
    (store) => relayed(store).chunks,
  );
});

/** Makes one request to a server, and hands over both once the answer has begun. */
async function withAnswer(
  name: string,
  serve: (incoming: IncomingMessage, outgoing: ServerResponse) => void,
  use: (call: ClientRequest, response: IncomingMessage) => Promise<void>,
): Promise<void> {
  const server = createServer(serve);
  const socketPath = `${place.dir}/${name}.sock`;
  server.listen(socketPath);
  await once(server, "listening");
  try {
    const call = request({ socketPath, method: "POST" });
    call.flushHeaders();
    const [response] = (await once(call, "response")) as [IncomingMessage];
    await use(call, response);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a write that a stream never takes fails once the stream closes", async () => {
  const to = new Writable({ write: () => undefined });
  const [one, other] = [1, 2].map((ask) => writeFrame(to, TYPES.end, ask));
  to.destroy();
  await expect(one).rejects.toThrow("the other side has left");
  await expect(other).rejects.toThrow("the other side has left");
});

test("an answer to a request whose connection is breaking fails", async () => {
  const begin = (_: IncomingMessage, outgoing: ServerResponse) => void outgoing.writeHead(200).flushHeaders();
  await withAnswer("breaking", begin, async (call, response) => {
    response.on("error", () => undefined);
    // It is destroyed, and has not said so yet: the request would drop what is written, and call nobody.
    call.socket?.destroy();
    await expect(writeFrame(call, TYPES.end, 1)).rejects.toThrow("the other side has left");
  });
});

test("a request and its answer are a relay: who answers the request has no store", async () => {
  const space = { store: await place.store("http/a/"), secret: place.secret };
  const content = randomBytes(5 * WINDOW);
  const dir = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
  const target = place.path();
  const own = newKey();
  const work = async (incoming: IncomingMessage, outgoing: ServerResponse) => {
    outgoing.writeHead(200).flushHeaders();
    const here = { store: new RelayedChunks(outgoing, incoming), secret: space.secret };
    const { contents } = await packFolder(here, own, { dir, files: ["mem"] });
    await unpackFolder(here, own, { contents, dir: target });
    outgoing.end();
  };
  await withAnswer(
    "relay",
    (incoming, outgoing) => void work(incoming, outgoing),
    async (call, response) => {
      await serveChunks(space.store, response, call);
      call.end();
    },
  );
  expect(await readFolder(target)).toEqual(await readFolder(dir));
  expect(space.store.puts).toHaveLength(6);
});

test("many names come whole", async () => {
  const names = Array.from({ length: 2_500 }, () => randomBytes(32).toString("hex"));
  const { chunks } = relayed({
    ...EMPTY,
    names: async function* () {
      yield* names;
    },
  });
  expect(await Array.fromAsync(chunks.names())).toEqual(names);
});

test("a failure of the store is that of the ask, with its reason, and the next ask is answered", async () => {
  const store = await place.store("failing/a/");
  const { chunks, asks, served } = relayed(store);
  await expect(chunks.get(NAME, 10)).rejects.toMatchObject({ reason: "missing" });
  store.onPut = () => Promise.reject(new Error("no answer"));
  await expect(chunks.put(NAME, Buffer.from("x"))).rejects.toThrow("no answer");
  store.onPut = () => undefined;
  await chunks.put(NAME, Buffer.from("x"));
  expect((await chunks.get(NAME, 10)).toString()).toBe("x");
  asks.end();
  await served;
});

test("who serves gets the result that comes last, and a frame after it breaks the relay", async () => {
  const { chunks, asks, served } = relayed(await place.store("result/a/"));
  await chunks.put(NAME, Buffer.from("x"));
  await chunks.finish({ sent: 1 });
  asks.end();
  expect(JSON.parse(String(await served))).toEqual({ sent: 1 });
  expect(await servedRaw(() => undefined)).toBeUndefined();
  const more = servedRaw(async (to) => {
    await writeFrame(to, TYPES.result, 0, Buffer.from("{}"));
    await writeFrame(to, TYPES.names, 1);
  });
  await expect(more).rejects.toBeInstanceOf(BrokenRelay);
});

test("an ask that is aborted ends with the reason, though its answer never comes", async () => {
  const { chunks } = relayed({ ...EMPTY, get: () => new Promise(() => undefined) });
  const reason = new Error("no longer wanted");
  const abort = new AbortController();
  const asked = chunks.get(NAME, 10, abort.signal);
  abort.abort(reason);
  await expect(asked).rejects.toBe(reason);
  await expect(chunks.put(NAME, Buffer.from("x"), abort.signal)).rejects.toBe(reason);
});

test("who has left answers nothing: all asks fail, the later ones too", async () => {
  const answers = new PassThrough();
  const chunks = new RelayedChunks(new PassThrough().resume(), answers);
  const asked = [chunks.get(NAME, 10), chunks.put(NAME, Buffer.from("x")), Array.fromAsync(chunks.names())];
  answers.end();
  for (const one of await Promise.allSettled(asked))
    expect(one).toMatchObject({ status: "rejected", reason: expect.any(BrokenRelay) });
  await expect(chunks.get(NAME, 10)).rejects.toThrow(BrokenRelay);
});

test("answers that are longer than asked for, and bytes that answer nothing, are refused", async () => {
  const { chunks } = relayed({ ...EMPTY, get: async () => Buffer.alloc(20) });
  await expect(chunks.get(NAME, 10)).rejects.toMatchObject({ reason: "too_long" });
  for (const bytes of [Buffer.alloc(9, 255), Buffer.from([99, 0, 0, 0, 1, 0, 0, 0, 0]), Buffer.alloc(3)]) {
    const other = new RelayedChunks(new PassThrough().resume(), Readable.from([bytes]));
    await expect(other.get(NAME, 10)).rejects.toThrow(BrokenRelay);
  }
});

test("frames that ask for nothing end the serving, and reach no store", async () => {
  const reached: string[] = [];
  const store: ChunkStore = {
    ...EMPTY,
    put: async (name) => void reached.push(name),
    get: async (name) => {
      reached.push(name);
      return Buffer.alloc(0);
    },
  };
  const broken = expect.any(BrokenRelay);
  const raws: ((to: Writable) => Promise<void> | void)[] = [
    (to) => void to.write(Buffer.alloc(9, 255)),
    (to) => void to.write(Buffer.alloc(5)),
    (to) => writeFrame(to, TYPES.put, 1, Buffer.alloc(10)),
    (to) => writeFrame(to, TYPES.get, 1, Buffer.alloc(33)),
    (to) => writeFrame(to, TYPES.end, 1, Buffer.alloc(40)),
  ];
  for (const raw of raws) await expect(servedRaw(raw, store)).rejects.toEqual(broken);
  expect(reached).toEqual([]);
});

test("a bounded number of asks is read ahead of their answers", async () => {
  let running = 0;
  let most = 0;
  const gate = Promise.withResolvers<void>();
  const get = async () => {
    most = Math.max(most, ++running);
    await gate.promise;
    running--;
    return Buffer.alloc(0);
  };
  const { chunks } = relayed({ ...EMPTY, get });
  const asked = Array.from({ length: 50 }, () => chunks.get(NAME, 10));
  while (most < 8) await new Promise((resolve) => setImmediate(resolve));
  gate.resolve();
  await Promise.all(asked);
  expect(most).toBe(8);
});

test("frames come as they were sent, however the stream is cut", async () => {
  const anyFrame = fc.record({
    type: fc.constantFrom(...Object.values(TYPES)),
    ask: fc.nat(),
    payload: fc.uint8Array({ maxLength: 300 }),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(anyFrame, { maxLength: 8 }),
      fc.array(fc.integer({ min: 1, max: 50 }), { minLength: 1 }),
      async (frames, cuts) => {
        const to = new PassThrough();
        const written = to.toArray();
        for (const { type, ask, payload } of frames) await writeFrame(to, type, ask, payload);
        to.end();
        const bytes = Buffer.concat((await written) as Buffer[]);
        const pieces: Buffer[] = [];
        for (let at = 0, n = 0; at < bytes.length; n++) {
          const length = cuts[n % cuts.length] ?? 1;
          pieces.push(bytes.subarray(at, at + length));
          at += length;
        }
        const read = await Array.fromAsync(readFrames(Readable.from(pieces)));
        expect(read).toEqual(frames.map((frame) => ({ ...frame, payload: Buffer.from(frame.payload) })));
      },
    ),
  );
});
