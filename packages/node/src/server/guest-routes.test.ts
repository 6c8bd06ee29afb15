import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, type IncomingMessage, type OutgoingHttpHeaders, request } from "node:http";
import { constants, type Http2ServerRequest, type ServerHttp2Stream } from "node:http2";
import { buffer, text } from "node:stream/consumers";
import { encodeFrame, encodeList, FRAME } from "@vivarium/contract/guest";
import { MIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type GuestNode, HELD_MACHINE, MACHINE, startGuestNode } from "../../test-support/guest-node.ts";

let node: GuestNode;
beforeEach(async () => {
  node = await startGuestNode();
});
afterEach(() => node.close());

function begin(method: string, target: string, headers: OutgoingHttpHeaders = {}): ClientRequest {
  const path = `/v1/machines/${MACHINE}/guest${target}`;
  const call = request({ socketPath: node.socketPath, method, path, headers, agent: false });
  call.on("error", () => {});
  return call;
}

async function answerOf(call: ClientRequest): Promise<IncomingMessage> {
  const [response] = (await once(call, "response")) as [IncomingMessage];
  return response;
}

async function ask(method: string, target: string, body?: string) {
  const call = begin(method, target);
  call.end(body);
  const response = await answerOf(call);
  return { status: response.statusCode, body: JSON.parse(await text(response)) };
}

/** Resolves with how the agent's side of a request ended. */
function endOfRequest(): Promise<{ code: number; ended: boolean }> {
  const { promise, resolve } = Promise.withResolvers<{ code: number; ended: boolean }>();
  node.handle = (asked) => {
    let ended = false;
    asked.on("end", () => {
      ended = true;
    });
    asked.stream.on("close", () => resolve({ code: asked.stream.rstCode ?? 0, ended }));
    asked.resume();
  };
  return promise;
}

const refuse = (status: number, code: string) => {
  node.handle = (asked, answer) => {
    asked.resume();
    answer.writeHead(status);
    answer.end(JSON.stringify({ code, message: "the agent's words" }));
  };
};

const TRUNCATED = { truncated: true, duration_us: 1 };
const END = encodeFrame(FRAME.eof, '{"truncated":false}');
const MATCH = { path: "/workspace/a", line_number: 3, line: "x" };
const PROCESS = { name: "a", argv: ["a"], keep_alive: false, state: "exited", started_at_ms: 1 };

describe("a request that is passed on", () => {
  it.each([
    ["GET", "/processes/a?x=a%20b&y=%C3%A9", PROCESS],
    ["DELETE", "/files?path=a&recursive=true", {}],
  ])("%s %s reaches the agent as it came, and its answer the caller", async (method, target, answer) => {
    node.handle = (_asked, response) => response.end(JSON.stringify(answer));
    expect(await ask(method, target)).toEqual({ status: 200, body: answer });
    expect(node.asked).toEqual([{ method, target: `/v1${target}` }]);
  });

  it("reaches the agent with its body unchanged", async () => {
    let seen = "";
    node.handle = (asked, response) => {
      asked.setEncoding("utf8").on("data", (chunk: string) => {
        seen += chunk;
      });
      asked.on("end", () => response.end("{}"));
    };
    await ask("POST", "/files/rename", '{"path":"a",  "dest_path":"b"}');
    expect(seen).toBe('{"path":"a",  "dest_path":"b"}');
  });

  it.each([
    ["PUT", "/files/list?path=."],
    ["GET", "/files/write?path=a"],
    ["GET", "/health"],
    ["POST", "/exec"],
    ["GET", "/files/../exec"],
    ["GET", "/files%2fread?path=a"],
    ["GET", "/processes/UPPER"],
    ["GET", "/processes/a/b"],
    ["DELETE", "/processes/a/logs"],
    ["GET", `/files/list?path=${"x".repeat(16_000)}`],
  ])("%s %s does not reach the agent", async (method, target) => {
    expect(await ask(method, target)).toMatchObject({ status: 400, body: { code: "invalid" } });
    expect(node.asked).toEqual([]);
  });

  it.each([
    [HELD_MACHINE, 409, "machine_held"],
    ["ccccccccccccccccccccc-1", 404, "machine_not_found"],
    ["UPPER", 404, "machine_not_found"],
  ])("nothing reaches the agent of machine %s", async (machine, status, code) => {
    const path = `/v1/machines/${machine}/guest/files/list?path=.`;
    const call = request({ socketPath: node.socketPath, path }).end();
    const response = await answerOf(call);
    expect(response.statusCode).toBe(status);
    expect(JSON.parse(await text(response)).code).toBe(code);
  });
});

describe("refusals of an agent", () => {
  it.each([
    [404, "no_such_file", 404, "no_such_file"],
    [409, "directory_not_empty", 409, "directory_not_empty"],
    [500, "no_space", 409, "no_space"],
    [400, "cwd_not_found", 400, "cwd_not_found"],
    [500, "internal", 500, "internal"],
    [404, "not_found", 400, "invalid"],
    [403, "machine_gone", 400, "invalid"],
    [403, "constructor", 400, "invalid"],
  ])("%i %s comes as %i %s", async (theirStatus, theirs, status, code) => {
    refuse(theirStatus, theirs);
    const answer = await ask("GET", "/files/list?path=a");
    expect(answer).toEqual({ status, body: { code, message: "the agent's words" } });
  });

  it.each([
    ["of no shape", "{}"],
    ["of several KiB", JSON.stringify({ code: "busy", message: "x".repeat(5000) })],
    ["of many KiB", JSON.stringify({ code: "busy", message: "x", more: "x".repeat(100_000) })],
  ])("%s make the agent unavailable", async (_title, body) => {
    node.handle = (_asked, response) => response.writeHead(400).end(body);
    const answer = await ask("GET", "/files/list?path=a");
    expect(answer).toMatchObject({ status: 503, body: { code: "agent_unavailable" } });
  });
});

describe("a JSON answer", () => {
  it.each([
    ["with a word that is no text", { ...PROCESS, argv: [7] }],
    ["without a field", { ...PROCESS, state: undefined }],
    ["with more words than there may be", { ...PROCESS, argv: Array(1025).fill("a") }],
  ])("%s makes the agent unavailable", async (_title, body) => {
    node.handle = (_asked, response) => response.end(JSON.stringify(body));
    const answer = await ask("GET", "/processes/a");
    expect(answer).toMatchObject({ status: 503, body: { code: "agent_unavailable" } });
  });

  it("over its limit ends the agent's stream and makes it unavailable", async () => {
    const closed = Promise.withResolvers<number>();
    node.handle = (asked, response) => {
      asked.stream.on("close", () => closed.resolve(asked.stream.rstCode ?? 0));
      const chunk = Buffer.alloc(MIB, " ");
      const more = () => {
        while (!asked.stream.destroyed && response.write(chunk));
      };
      response.on("drain", more);
      more();
    };
    const answer = await ask("GET", "/processes/a");
    expect(answer).toMatchObject({ status: 503, body: { code: "agent_unavailable" } });
    expect(await closed.promise).toBe(constants.NGHTTP2_CANCEL);
  });

  it("is cancelled if the caller does not wait for it", async () => {
    const end = endOfRequest();
    const call = begin("GET", "/files/grep?path=.&pattern=x");
    call.end();
    while (node.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    call.destroy();
    expect((await end).code).toBe(constants.NGHTTP2_CANCEL);
  });
});

describe("a list", () => {
  const lists: [string, unknown[], object][] = [
    ["/files/list?path=a", ["a", "b/"], { truncated: false }],
    ["/files/find?path=.&pattern=**/*.ts", [], { truncated: true, duration_us: 1 }],
    ["/files/grep?path=.&pattern=x", [MATCH, MATCH], { files_searched: 1, truncated: false, duration_us: 1 }],
    ["/processes", [PROCESS], {}],
  ];
  it.each(lists)("%s reaches the caller frame by frame, unchanged", async (target, items, end) => {
    const list = encodeList(items, end);
    node.handle = (_asked, response) => response.end(list);
    const response = await answerOf(begin("GET", target).end());
    expect(response.statusCode).toBe(200);
    expect((await buffer(response)).equals(list)).toBe(true);
  });

  it("is passed on before it has ended, each item once it is whole", async () => {
    const [first, second] = [encodeFrame(FRAME.items, '"a"\n"b'), encodeFrame(FRAME.items, '"\n')];
    const rest = Promise.withResolvers<void>();
    node.handle = (_asked, response) => {
      response.write(first);
      void rest.promise.then(() => response.end(Buffer.concat([second, END])));
    };
    const response = await answerOf(begin("GET", "/files/list?path=a").end());
    expect((await once(response, "data"))[0]).toEqual(first);
    rest.resolve();
    expect(await buffer(response)).toEqual(Buffer.concat([second, END]));
  });

  it("ends as its contract says, without anything that an agent adds", async () => {
    node.handle = (_asked, response) => response.end(encodeList(["a"], { truncated: false, more: "words" }));
    const response = await answerOf(begin("GET", "/files/list?path=a").end());
    expect(await buffer(response)).toEqual(encodeList(["a"], { truncated: false }));
  });

  const broken: [string, string, Buffer[]][] = [
    ["with an entry that is no text", "/files/list?path=a", [encodeList([7], { truncated: false })]],
    ["whose end lacks a field", "/files/list?path=a", [encodeList(["a"], {})]],
    ["without an end", "/files/list?path=a", [encodeFrame(FRAME.items, '"a"\n')]],
    ["that ends within an item", "/files/list?path=a", [encodeFrame(FRAME.items, '"a'), END]],
    ["with a frame of output", "/files/list?path=a", [encodeFrame(FRAME.stdout, "x"), END]],
    ["of more than may be listed", "/files/list?path=a", [encodeList(Array(100_001).fill("a"), TRUNCATED)]],
    [
      "of more paths than may be",
      "/files/find?path=a&pattern=x",
      [encodeList(Array(10_001).fill("a"), TRUNCATED)],
    ],
    [
      "that is mostly brackets",
      "/files/list?path=a",
      [encodeFrame(FRAME.items, `${"[".repeat(60_000)}\n`), END],
    ],
    [
      "with an item that does not end",
      "/files/list?path=a",
      Array(20).fill(encodeFrame(FRAME.items, Buffer.alloc(60_000, '"'))),
    ],
  ];
  it.each(broken)("%s breaks off, and so does the agent's stream", async (_title, target, frames) => {
    const closed = Promise.withResolvers<void>();
    node.handle = (asked, response) => {
      asked.stream.on("close", () => closed.resolve());
      for (const frame of frames) response.write(frame);
      response.end();
    };
    const response = await answerOf(begin("GET", target).end());
    await expect(buffer(response)).rejects.toThrow();
    await closed.promise;
  });

  it("that the agent cannot finish ends with the agent's error, cut short", async () => {
    node.handle = (_asked, response) => response.end(encodeFrame(FRAME.error, "x".repeat(5000)));
    const response = await answerOf(begin("GET", "/files/list?path=a").end());
    expect(await buffer(response)).toEqual(encodeFrame(FRAME.error, "x".repeat(1024)));
  });
});

describe("an upload", () => {
  const written = (bytes: number) => JSON.stringify({ bytes, duration_us: 1 });

  it("of any size reaches the agent byte for byte, with its length if that is known", async () => {
    const content = randomBytes(9 * MIB);
    for (const headers of [{ "content-length": content.length }, {}]) {
      const hash = createHash("sha256");
      let length: string | undefined;
      node.handle = (asked, response) => {
        length = asked.headers["content-length"];
        asked.on("data", (chunk: Buffer) => hash.update(chunk));
        asked.on("end", () => response.end(written(content.length)));
      };
      const call = begin("PUT", "/files/write?path=a", headers);
      call.write(content);
      call.end();
      const response = await answerOf(call);
      const sha256 = createHash("sha256").update(content).digest("hex");
      expect(JSON.parse(await text(response))).toMatchObject({ bytes: content.length, sha256 });
      expect(hash.digest("hex")).toBe(sha256);
      expect(length).toBe(headers["content-length"]?.toString());
    }
  });

  it("may be empty", async () => {
    node.handle = (asked, response) => asked.resume().on("end", () => response.end(written(0)));
    expect(await ask("PUT", "/files/write?path=a")).toMatchObject({ status: 200, body: { bytes: 0 } });
  });

  it("takes no more from the caller than the agent reads", async () => {
    const held = Promise.withResolvers<() => void>();
    node.handle = (asked, response) => {
      let bytes = 0;
      held.resolve(() => {
        asked.on("data", (chunk: Buffer) => {
          bytes += chunk.length;
        });
        asked.on("end", () => response.end(written(bytes)));
      });
    };
    const call = begin("PUT", "/files/write?path=a");
    const total = 64 * MIB;
    call.end(Buffer.alloc(total));
    const release = await held.promise;
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { socket } = call;
    expect(socket?.writableLength).toBeGreaterThan(total - 4 * MIB);
    release();
    const response = await answerOf(call);
    expect(JSON.parse(await text(response))).toMatchObject({ bytes: total });
  });

  it.each([
    ["with a known length", { "content-length": 64 * MIB }],
    ["of unknown length", {}],
  ])("that breaks off, %s, is reset and never ends", async (_title, headers) => {
    for (const sent of [1, 100, 300_000, 8 * MIB]) {
      const end = endOfRequest();
      const call = begin("PUT", "/files/write?path=a", headers);
      call.write(Buffer.alloc(sent));
      while (node.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      await new Promise((resolve) => setTimeout(resolve, 20));
      call.destroy();
      expect(await end).toEqual({ code: constants.NGHTTP2_CANCEL, ended: false });
      node.asked.length = 0;
    }
  });

  it("that breaks off while the agent reads nothing is reset once it reads, and never ends", async () => {
    const asked = Promise.withResolvers<Http2ServerRequest>();
    node.handle = asked.resolve;
    const call = begin("PUT", "/files/write?path=a");
    call.write(Buffer.alloc(8 * MIB));
    const { stream } = await asked.promise;
    call.destroy();
    const end = Promise.withResolvers<string>();
    stream.once("aborted", () => end.resolve("reset"));
    stream.once("end", () => end.resolve("end"));
    stream.resume();
    expect(await end.promise).toBe("reset");
  });

  it.each([
    ["goes on", false],
    ["resets the request", true],
  ])(
    "that the agent refuses before it has read it, and %s, is refused for that reason",
    async (_title, resets) => {
      node.handle = (asked, response) => {
        response.writeHead(409);
        response.end(JSON.stringify({ code: "no_space", message: "no space left on device" }));
        if (resets) response.on("finish", () => asked.stream.close(constants.NGHTTP2_NO_ERROR));
      };
      const call = begin("PUT", "/files/write?path=a");
      call.write(Buffer.alloc(16 * MIB));
      const response = await answerOf(call);
      expect(response.statusCode).toBe(409);
      expect(JSON.parse(await text(response)).code).toBe("no_space");
      call.destroy();
    },
  );

  it.each([
    ["more than it was sent", 5],
    ["less than it was sent", 3],
  ])("of which the agent claims to have kept %s has failed", async (_title, bytes) => {
    node.handle = (asked, response) => asked.resume().on("end", () => response.end(written(bytes)));
    const answer = await ask("PUT", "/files/write?path=a", "1234");
    expect(answer).toMatchObject({ status: 503, body: { code: "agent_unavailable" } });
  });

  it("fails if the agent claims to have stored it before it was sent", async () => {
    node.handle = (_asked, response) => response.end(written(4));
    const call = begin("PUT", "/files/write?path=a");
    call.write("1234");
    const response = await answerOf(call);
    expect(response.statusCode).toBe(503);
    call.destroy();
  });
});

describe("a file's content", () => {
  it("arrives whole, with its length", async () => {
    const content = randomBytes(5 * MIB);
    node.handle = (_asked, response) => {
      response.writeHead(200, { "content-length": content.length });
      response.end(content);
    };
    const call = begin("GET", "/files/read?path=a");
    call.end();
    const response = await answerOf(call);
    expect(response.headers["content-length"]).toBe(String(content.length));
    expect((await buffer(response)).equals(content)).toBe(true);
  });

  it.each([
    ["none", undefined],
    ["one that is no number", "many"],
    ["more than was asked for", "11"],
  ])("with %s for a length makes the agent unavailable", async (_title, length) => {
    node.handle = (asked) =>
      asked.stream.respond({ ":status": 200, ...(length && { "content-length": length }) });
    const answer = await ask("GET", "/files/read?path=a&max_bytes=10");
    expect(answer).toMatchObject({ status: 503, body: { code: "agent_unavailable" } });
  });

  it.each([
    ["ends before it is whole", 10, (s: ServerHttp2Stream) => s.end("123")],
    ["is reset before it is whole", 10, (s: ServerHttp2Stream) => s.write("123", () => s.close(0))],
    ["is longer than promised", 2, (s: ServerHttp2Stream) => s.end("123")],
  ])("that %s breaks off", async (_title, length, send) => {
    node.handle = ({ stream }) => {
      stream.on("error", () => {});
      stream.respond({ ":status": 200, "content-length": length });
      send(stream);
    };
    const call = begin("GET", "/files/read?path=a");
    call.end();
    // Broken off before its first byte, or after it.
    const answer = answerOf(call).then(buffer);
    await expect(Promise.race([answer, once(call, "close").then(() => answer)])).rejects.toThrow();
  });

  it("is read from the agent no faster than its reader takes it, and cancelled when the reader leaves", async () => {
    let sent = 0;
    const closed = Promise.withResolvers<number>();
    node.handle = ({ stream }) => {
      stream.on("close", () => closed.resolve(stream.rstCode ?? 0));
      stream.respond({ ":status": 200, "content-length": 1024 * MIB });
      const chunk = Buffer.alloc(MIB);
      const more = () => {
        while (!stream.destroyed && stream.write(chunk)) sent += chunk.length;
        sent += chunk.length;
      };
      stream.on("drain", more);
      more();
    };
    const call = begin("GET", "/files/read?path=a");
    call.end();
    const response = await answerOf(call);
    response.pause();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(sent).toBeLessThan(16 * MIB);
    call.destroy();
    expect(await closed.promise).toBe(constants.NGHTTP2_CANCEL);
  });
});

describe("a log", () => {
  const eof = encodeFrame(FRAME.eof, JSON.stringify({ stdout_truncated: false, stderr_truncated: true }));
  const out = encodeFrame(FRAME.stdout, "1234");
  const read = async (body: Buffer[], query = "tail_bytes=4") => {
    node.handle = (_asked, response) => response.end(Buffer.concat(body));
    const call = begin("GET", `/processes/web/logs?${query}`);
    call.end();
    return await buffer(await answerOf(call));
  };

  it("is passed on frame by frame, with one end", async () => {
    expect(await read([out, encodeFrame(FRAME.stderr, "err"), eof])).toEqual(
      Buffer.concat([out, encodeFrame(FRAME.stderr, "err"), eof]),
    );
  });

  it("may end with an error", async () => {
    const error = encodeFrame(FRAME.error, "gone");
    expect(await read([error])).toEqual(error);
  });

  it("has no size limit while it is followed", async () => {
    expect(await read([out, out, out, eof], "follow=true")).toHaveLength(3 * out.length + eof.length);
  });

  it.each([
    ["no end", [out]],
    ["an exit", [encodeFrame(FRAME.exit, "{}")]],
    ["two ends", [eof, eof]],
    ["something behind its end", [eof, out]],
    ["half a frame behind its end", [eof, out.subarray(0, 3)]],
    ["an end that says nothing", [encodeFrame(FRAME.eof, "")]],
    ["more than was asked for", [out, encodeFrame(FRAME.stdout, "5"), eof]],
  ])("with %s breaks off", async (_title, body) => {
    await expect(read(body)).rejects.toThrow();
  });
});

describe("a request in flight", () => {
  it.each(["breaks off when %s", "the machine is held"])("breaks off when %s", async (event) => {
    node.handle = (_asked, response) => {
      response.stream.respond({ ":status": 200 });
    };
    const call = begin("GET", "/processes/web/logs?follow=true");
    call.end();
    const response = await answerOf(call);
    const content = buffer(response);
    if (event === "the machine ends") node.client.close();
    else node.client.breakOff();
    await expect(content).rejects.toThrow();
  });
});
