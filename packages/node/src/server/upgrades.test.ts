import { once } from "node:events";
import { request } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { encodeTerminalFrame, TERMINAL_FRAME, TerminalFrameDecoder } from "@vivarium/contract/guest";
import { encodeOpening, OpeningReader } from "@vivarium/contract/node";
import { MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type GuestNode, HELD_MACHINE, MACHINE, startGuestNode } from "../../test-support/guest-node.ts";

const SPEC = { env: { A: "ä" }, rows: 24, cols: 80 };
const EXIT = encodeTerminalFrame(TERMINAL_FRAME.exit, Buffer.from([0, 0, 0, 3]));
const data = (content: string | Buffer) => encodeTerminalFrame(TERMINAL_FRAME.data, Buffer.from(content));

let node: GuestNode;
let sockets: Socket[];
beforeEach(async () => {
  sockets = [];
  node = await startGuestNode();
});
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  await node.close();
});

const HEAD_END = "\r\n\r\n";

/** Sends an upgrade. Returns the connection after the head of a 101. */
async function upgrade(kind: string, first: Buffer): Promise<Socket> {
  const socket = connect(node.socketPath);
  sockets.push(socket);
  socket.on("error", () => {});
  const path = `/v1/machines/${MACHINE}/${kind}`;
  socket.write(
    `GET ${path} HTTP/1.1\r\nhost: node\r\nconnection: Upgrade\r\nupgrade: vivarium-stream${HEAD_END}`,
  );
  socket.write(first);
  let seen = Buffer.alloc(0);
  while (!seen.includes(HEAD_END)) seen = Buffer.concat([seen, (await once(socket, "data"))[0] as Buffer]);
  socket.pause();
  const at = seen.indexOf(HEAD_END) + HEAD_END.length;
  expect(seen.subarray(0, at).toString()).toMatch(/^HTTP\/1\.1 101 .*\r\nupgrade: vivarium-stream\r\n/is);
  socket.unshift(seen.subarray(at));
  return socket;
}

async function readOpening(socket: Socket): Promise<unknown> {
  const reader = new OpeningReader();
  for (;;) {
    const arrived = once(socket, "data");
    socket.resume();
    const [chunk] = (await arrived) as [Buffer];
    socket.pause();
    const opening = reader.push(chunk);
    if (opening === undefined) continue;
    socket.unshift(opening.rest);
    return opening.value;
  }
}

async function open(kind: string, spec: object, more = ""): Promise<Socket> {
  const socket = await upgrade(kind, Buffer.concat([encodeOpening(spec), Buffer.from(more)]));
  expect(await readOpening(socket)).toEqual({});
  return socket;
}

/** The agent's side of the next connection, accepted, after its opening frame. */
function nextGuest(): Promise<{ stream: ServerHttp2Stream; opening: unknown; rest: Buffer }> {
  const { promise, resolve } = Promise.withResolvers<{
    stream: ServerHttp2Stream;
    opening: unknown;
    rest: Buffer;
  }>();
  node.handle = ({ stream }) => {
    stream.on("error", () => {});
    stream.once("data", (first: Buffer) => {
      stream.pause();
      const length = first.readUInt32BE(1);
      expect(first[0]).toBe(TERMINAL_FRAME.open);
      stream.respond({ ":status": 200 });
      const opening = JSON.parse(first.subarray(5, 5 + length).toString());
      resolve({ stream, opening, rest: first.subarray(5 + length) });
    });
  };
  return promise;
}

describe("an upgrade is refused", () => {
  it.each([
    ["of another kind", "GET", "h2c", `/v1/machines/${MACHINE}/tunnel`, 400, "invalid"],
    ["of something else", "GET", "vivarium-stream", `/v1/machines/${MACHINE}/exec`, 400, "invalid"],
    ["by another method", "POST", "vivarium-stream", `/v1/machines/${MACHINE}/tunnel`, 400, "invalid"],
    ["with a query", "GET", "vivarium-stream", `/v1/machines/${MACHINE}/tunnel?a=b`, 400, "invalid"],
    [
      "for a held machine",
      "GET",
      "vivarium-stream",
      `/v1/machines/${HELD_MACHINE}/tunnel`,
      409,
      "machine_held",
    ],
    ["for no machine", "GET", "vivarium-stream", "/v1/machines/UPPER/terminals", 404, "machine_not_found"],
  ])("%s, with an ordinary answer", async (_title, method, protocol, path, status, code) => {
    const headers = { connection: "Upgrade", upgrade: protocol };
    const call = request({ socketPath: node.socketPath, method, path, headers }).end();
    const [response] = await once(call, "response");
    expect(response.statusCode).toBe(status);
    expect(JSON.parse(await text(response))).toEqual({ code, message: expect.stringMatching(/./) });
    expect(node.asked).toEqual([]);
  });
});

describe("an opening is refused", () => {
  it.each([
    ["that does not fit", "terminals", encodeOpening({ ...SPEC, rows: 0 })],
    ["that is not JSON", "tunnel", Buffer.from([0, 0, 0, 1, 0x7b])],
    ["that is endless", "tunnel", Buffer.from([0xff, 0xff, 0xff, 0xff])],
  ])("%s, and the connection ends", async (_title, kind, first) => {
    const socket = await upgrade(kind, first);
    expect(await readOpening(socket)).toEqual({ code: "invalid", message: expect.stringMatching(/./) });
    expect(await text(socket)).toBe("");
    expect(node.asked).toEqual([]);
  });

  it("by the agent, with the agent's reason", async () => {
    node.handle = (_asked, response) => {
      response.writeHead(429);
      response.end(JSON.stringify({ code: "terminal_limit", message: "too many" }));
    };
    const socket = await upgrade("terminals", encodeOpening(SPEC));
    expect(await readOpening(socket)).toEqual({ code: "terminal_limit", message: "too many" });
    expect(await text(socket)).toBe("");
  });
});

describe("a terminal", () => {
  it("is opened as the caller asks, and carries the agent's output up to the exit", async () => {
    const coming = nextGuest();
    const socket = await open("terminals", { ...SPEC, unknown: true });
    const { stream, opening } = await coming;
    expect(opening).toEqual(SPEC);
    expect(node.asked).toEqual([{ method: "POST", target: "/v1/terminals" }]);
    stream.write(data("hello"));
    stream.end(EXIT);
    const chunks: Buffer[] = [];
    for await (const chunk of socket) chunks.push(chunk as Buffer);
    const frames = [...new TerminalFrameDecoder().push(Buffer.concat(chunks))];
    expect(frames.map(({ type, payload }) => [type, payload.toString("latin1")])).toEqual([
      [TERMINAL_FRAME.data, "hello"],
      [TERMINAL_FRAME.exit, "\0\0\0\x03"],
    ]);
  });

  it.each([
    ["a frame of an unknown type", encodeTerminalFrame(0x04, Buffer.from("x"))],
    ["an opening", encodeTerminalFrame(TERMINAL_FRAME.open, Buffer.from("{}"))],
    ["a length over the cap", Buffer.from([1, 0xff, 0xff, 0xff, 0xff])],
    ["an exit of another length", encodeTerminalFrame(TERMINAL_FRAME.exit, Buffer.from([0]))],
    ["an exit out of range", encodeTerminalFrame(TERMINAL_FRAME.exit, Buffer.from([0x7f, 0, 0, 0]))],
    ["two exits", Buffer.concat([EXIT, EXIT])],
    ["data behind its exit", Buffer.concat([EXIT, data("x")])],
  ])("breaks off at %s", async (_title, bytes) => {
    const coming = nextGuest();
    const socket = await open("terminals", SPEC);
    const { stream } = await coming;
    const closed = once(stream, "close");
    stream.write(bytes);
    await closed;
    if (!socket.closed) await once(socket.resume(), "close");
    expect(stream.rstCode).not.toBe(0);
  });

  it("passes on bytes sent right after the opening", async () => {
    const coming = nextGuest();
    const socket = await open("terminals", SPEC, "typed ahead");
    const { stream, rest } = await coming;
    socket.end();
    let seen = rest.toString();
    for await (const chunk of stream) seen += chunk;
    expect(seen).toBe("typed ahead");
  });
});

describe("a tunnel", () => {
  it("carries bytes unchanged both ways", async () => {
    const coming = nextGuest();
    const socket = await open("tunnel", { env: {} });
    const { stream } = await coming;
    stream.pipe(stream);
    const sent = Buffer.from(Array.from({ length: 3 * MIB }, (_, i) => i % 251));
    socket.end(sent);
    const back: Buffer[] = [];
    for await (const chunk of socket) back.push(chunk as Buffer);
    expect(Buffer.concat(back).equals(sent)).toBe(true);
  });

  it("ends for the agent when the caller leaves", async () => {
    const coming = nextGuest();
    const socket = await open("tunnel", { env: {} });
    const { stream } = await coming;
    const closed = once(stream.resume(), "close");
    socket.destroy();
    await closed;
  });

  it.each(["the agent ends it", "the agent breaks it off", "the machine ends", "the machine is held"])(
    "ends for the caller when %s",
    async (event) => {
      const coming = nextGuest();
      const socket = await open("tunnel", { env: {} });
      const { stream } = await coming;
      const ended = once(socket.resume(), "close");
      if (event === "the agent ends it") stream.end();
      else if (event === "the agent breaks it off") stream.close(2);
      else if (event === "the machine ends") node.client.close();
      else node.client.breakOff();
      await ended;
    },
  );

  it("takes no more from the agent than the caller reads", async () => {
    const coming = nextGuest();
    const socket = await open("tunnel", { env: {} });
    const { stream } = await coming;
    let sent = 0;
    const chunk = Buffer.alloc(MIB);
    const more = () => {
      do sent += chunk.length;
      while (!stream.destroyed && sent < 256 * MIB && stream.write(chunk));
    };
    stream.on("drain", more);
    socket.pause();
    more();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(sent).toBeLessThan(16 * MIB);
  });

  it("takes no more from the caller than the agent reads", async () => {
    const coming = nextGuest();
    const socket = await open("tunnel", { env: {} });
    await coming;
    socket.write(Buffer.alloc(64 * MIB));
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(socket.writableLength).toBeGreaterThan(56 * MIB);
  });
});
