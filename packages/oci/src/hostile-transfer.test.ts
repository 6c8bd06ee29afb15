import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readdir, readFile, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { rootCertificates } from "node:tls";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { makeImage, REPOSITORY, sendBytes, serveImage } from "../test-support/image.ts";
import { failureOfPull, pull, QUICK_LIMITS, REGISTRY, withDirectory } from "../test-support/pull.ts";
import { StandIn } from "../test-support/stand-in.ts";
import { dialPublic } from "./dial.ts";
import type { Progress } from "./progress.ts";
import type { RegistryError } from "./registry-error.ts";

const CONTENT = randomBytes(2_000_000);
const image = makeImage({ layers: [CONTENT] });
const DIGEST = image.layers[0]?.digest ?? "";
const FILE = DIGEST.replace(":", "-");
let standIn: StandIn;

beforeEach(async () => {
  standIn = await StandIn.start();
});
afterEach(async () => {
  await standIn[Symbol.asyncDispose]();
});

type Answering = (request: IncomingMessage, response: ServerResponse, attempt: number) => void;

/** Answers requests for the layer, which is the first, second, … of them; the rest is as it should be. */
function serveLayer(answer: Answering): void {
  let attempts = 0;
  standIn.serve(REGISTRY, (request, response) => {
    if (request.url?.endsWith(DIGEST)) answer(request, response, ++attempts);
    else serveImage(image)(request, response);
  });
}

const layerRequests = () => standIn.requests.filter(({ path }) => path.endsWith(DIGEST));
const whole = { "content-length": CONTENT.length };

/**
 * The head of a whole answer and these bytes; then the connection breaks. Of the bytes up to 200,000 may be in buffers of
 * the client still, which drops them.
 */
async function breakAfter(
  response: ServerResponse,
  bytes: Buffer,
  status = 200,
  headers = {},
): Promise<void> {
  response.writeHead(status, { ...whole, ...headers });
  await new Promise((resolve) => response.write(bytes, resolve));
  // A reset could overtake the bytes.
  response.socket?.end();
}

const right: Answering = ({ headers }, response) =>
  sendBytes(response, CONTENT, "application/octet-stream", headers.range);

describe("a layer", () => {
  test("that breaks off continues where it ended", async () => {
    serveLayer((request, response, attempt) => {
      const start = Number(/\d+/.exec(request.headers.range ?? "0")?.[0]);
      if (attempt > 2) return right(request, response, attempt);
      const rest = {
        "content-length": CONTENT.length - start,
        "content-range": `bytes ${start}-1999999/2000000`,
      };
      void breakAfter(
        response,
        CONTENT.subarray(start, start + 500_000),
        start > 0 ? 206 : 200,
        start > 0 ? rest : {},
      );
    });
    await withDirectory(async (directory) => {
      const { layers } = await pull(standIn, directory);
      expect(await readFile(layers[0]?.path ?? "")).toEqual(CONTENT);
    });
    const starts = layerRequests().map(({ range }) => range);
    expect(starts).toHaveLength(3);
    expect(starts[0]).toBeUndefined();
    expect(starts[2]).toMatch(/^bytes=\d{6,7}-$/);
  });

  test("whose registry knows no ranges begins anew", async () => {
    serveLayer((_, response, attempt) => {
      if (attempt === 1) void breakAfter(response, CONTENT.subarray(0, 500_000));
      else sendBytes(response, CONTENT, "application/octet-stream");
    });
    await withDirectory(async (directory) => {
      const { layers } = await pull(standIn, directory);
      expect(await readFile(layers[0]?.path ?? "")).toEqual(CONTENT);
    });
  });

  test.each([
    ["another place", () => ({ "content-range": "bytes 0-1499999/2000000" })],
    ["no place", () => ({})],
    [
      "another length of the whole",
      (start: string) => ({ "content-range": `bytes ${start}-1999999/3000000` }),
    ],
    ["a place that cannot be read", () => ({ "content-range": "pages 1-2" })],
  ])("whose rest is sent for %s begins anew", async (_, headersFor) => {
    serveLayer((request, response, attempt) => {
      const start = /\d+/.exec(request.headers.range ?? "")?.[0] ?? "";
      if (attempt === 1) void breakAfter(response, CONTENT.subarray(0, 500_000));
      else if (attempt === 2) response.writeHead(206, headersFor(start)).end(CONTENT.subarray(Number(start)));
      else right(request, response, attempt);
    });
    await withDirectory(async (directory) => {
      const { layers } = await pull(standIn, directory);
      expect(await readFile(layers[0]?.path ?? "")).toEqual(CONTENT);
    });
    expect(layerRequests()).toHaveLength(3);
  });

  test("continues what an earlier process has left", async () => {
    serveLayer(right);
    await withDirectory(async (directory) => {
      await writeFile(join(directory, `${FILE}.partial`), CONTENT.subarray(0, 70_000));
      await pull(standIn, directory);
      expect(await readdir(directory)).toEqual([FILE]);
    });
    expect(layerRequests().map(({ range }) => range)).toEqual(["bytes=70000-"]);
  });

  test.each([
    ["begins with other bytes", Buffer.alloc(70_000)],
    ["is as long, but another", Buffer.alloc(CONTENT.length)],
    ["is longer", Buffer.alloc(CONTENT.length + 1)],
  ])("is fetched anew if what was left %s", async (_, left) => {
    serveLayer(right);
    await withDirectory(async (directory) => {
      await writeFile(join(directory, `${FILE}.partial`), left);
      const { layers } = await pull(standIn, directory);
      expect(await readFile(layers[0]?.path ?? "")).toEqual(CONTENT);
    });
  });

  test("is fetched anew if a file of its name has another length", async () => {
    serveLayer(right);
    await withDirectory(async (directory) => {
      await writeFile(join(directory, FILE), "short");
      const { layers } = await pull(standIn, directory);
      expect(await readFile(layers[0]?.path ?? "")).toEqual(CONTENT);
    });
  });

  test.each<[string, Answering, string]>([
    [
      "of other bytes",
      (_, response) => void response.writeHead(200, whole).end(Buffer.alloc(CONTENT.length)),
      "bad_digest",
    ],
    [
      "of fewer bytes",
      (_, response) => void response.writeHead(200, { "content-length": 1_999_999 }).end(CONTENT.subarray(1)),
      "bad_digest",
    ],
    [
      "of fewer bytes, without a length",
      (_, response) => {
        response.writeHead(200).write(CONTENT.subarray(0, 1000));
        response.end();
      },
      "registry_failed",
    ],
    [
      "of more bytes",
      (_, response) => void response.writeHead(200).end(Buffer.concat([CONTENT, CONTENT])),
      "bad_digest",
    ],
    [
      "without an end",
      (_, response) => {
        response.writeHead(200);
        const more = () => {
          while (response.write(CONTENT));
          response.once("drain", more);
        };
        more();
      },
      "bad_digest",
    ],
    [
      "in an encoding that was not asked for",
      (_, response) => void response.writeHead(200, { "content-encoding": "gzip" }).end(CONTENT),
      "registry_failed",
    ],
    ["that is not there", (_, response) => void response.writeHead(404).end(), "not_found"],
    ["that is forbidden", (_, response) => void response.writeHead(403).end(), "authentication_failed"],
    ["that has nothing but failures", (_, response) => void response.writeHead(503).end(), "registry_failed"],
    [
      "in a part that was not asked for",
      (_, response) => void response.writeHead(206, { "content-range": "bytes 0-9/10" }).end("0123456789"),
      "registry_failed",
    ],
    [
      "with heads without end",
      (_, response) => void response.writeHead(200, { x: "x".repeat(20_000) }).end(CONTENT),
      "registry_failed",
    ],
    ["that is no HTTP", ({ socket }) => void socket.end("SSH-2.0-OpenSSH_9.2\r\n"), "registry_failed"],
  ])("%s is refused, and leaves nothing under its name", async (_, answer, code) => {
    serveLayer(answer);
    await withDirectory(async (directory) => {
      await expect(pull(standIn, directory)).rejects.toMatchObject({ code });
      expect(await readdir(directory)).not.toContain(FILE);
    });
  });

  test("that does not end is cut at its size", async () => {
    serveLayer((_, response) => void response.writeHead(200).end(Buffer.concat([CONTENT, CONTENT, CONTENT])));
    const seen: number[] = [];
    const onProgress = ({ bytes }: Progress) => seen.push(bytes.done);
    expect(await failureOfPull(standIn, { onProgress })).toMatchObject({ code: "bad_digest" });
    expect(Math.max(...seen)).toBeLessThanOrEqual(CONTENT.length);
  });

  test("that never makes progress is asked for a bounded number of times", async () => {
    serveLayer((_, response) => void breakAfter(response, Buffer.alloc(0)));
    expect(await failureOfPull(standIn)).toMatchObject({ code: "registry_failed" });
    expect(layerRequests()).toHaveLength(QUICK_LIMITS.retries + 1);
  });

  test("that makes little progress is asked for a bounded number of times, too", async () => {
    serveLayer((request, response) => {
      const start = Number(/\d+/.exec(request.headers.range ?? "0")?.[0]);
      const rest = {
        "content-length": CONTENT.length - start,
        "content-range": `bytes ${start}-1999999/2000000`,
      };
      void breakAfter(
        response,
        CONTENT.subarray(start, start + 300_000),
        start > 0 ? 206 : 200,
        start > 0 ? rest : {},
      );
    });
    expect(await failureOfPull(standIn, { limits: { resumes: 3 } })).toMatchObject({
      code: "registry_failed",
    });
    expect(layerRequests()).toHaveLength(4);
  });

  test("that failed ends the transfer of the others", async () => {
    const two = makeImage({ layers: [randomBytes(10), randomBytes(20)] });
    const [slow, broken] = two.layers.map(({ digest }) => digest);
    let closed: Promise<unknown> = Promise.resolve();
    const begun = Promise.withResolvers<void>();
    standIn.serve(REGISTRY, async (request, response) => {
      if (request.url?.endsWith(slow ?? "?")) {
        response.writeHead(200, { "content-length": 10 }).flushHeaders();
        closed = once(response, "close");
        return begun.resolve();
      }
      if (!request.url?.endsWith(broken ?? "?")) return serveImage(two)(request, response);
      await begun.promise;
      response.writeHead(200).end(Buffer.alloc(20));
    });
    expect(await failureOfPull(standIn)).toMatchObject({ code: "bad_digest" });
    await closed;
  });

  test("leaves a registry that was overloaded for a moment its time", async () => {
    serveLayer((request, response, attempt) => {
      if (attempt < 3) response.writeHead(attempt === 1 ? 500 : 503).end();
      else right(request, response, attempt);
    });
    await withDirectory((directory) => pull(standIn, directory));
    expect(layerRequests()).toHaveLength(3);
  });

  test("behind a signed address that has expired is asked for again", async () => {
    const cdn = "cdn.example.net";
    serveLayer(
      (_, response, attempt) =>
        void response.writeHead(307, { location: `https://${cdn}/?signature=${attempt}` }).end(),
    );
    standIn.serve(cdn, (request, response) => {
      if (request.url === "/?signature=1") response.writeHead(403).end("expired");
      else right(request, response, 1);
    });
    await withDirectory((directory) => pull(standIn, directory));
    expect(standIn.requestsTo(cdn).map(({ path }) => path)).toEqual(["/?signature=1", "/?signature=2"]);
    standIn.serve(cdn, (_, response) => void response.writeHead(403).end());
    const error = await failureOfPull(standIn);
    expect(error).toMatchObject({ code: "registry_failed" });
    expect(error.message).not.toContain("signature");
  });
});

describe("time", () => {
  test.each<[string, object, Answering]>([
    ["whose answer does not begin", { headMs: 200 }, () => {}],
    [
      "whose answer stops",
      { windowMs: 200 },
      (_, response) => void response.writeHead(200, whole).write("x"),
    ],
    [
      "that sends byte by byte",
      { windowMs: 200 },
      (_, response) => {
        response.writeHead(200, whole);
        const timer = setInterval(() => response.write("x"), 20);
        response.once("close", () => clearInterval(timer));
      },
    ],
    [
      "that is slow as a whole",
      { totalMs: 700 },
      (_, response) => {
        response.writeHead(200, whole);
        const timer = setInterval(() => response.write("x"), 20);
        response.once("close", () => clearInterval(timer));
      },
    ],
  ])("of a registry %s is up", async (_, limits, answer) => {
    serveLayer(answer);
    expect(await failureOfPull(standIn, { limits: { retries: 0, resumes: 0, ...limits } })).toMatchObject({
      code: "timed_out",
      isTransient: true,
    });
  });

  test("of a connection that is made is not up when its own is", async () => {
    const connectMs = 1_500;
    serveLayer((_, response) => {
      response.writeHead(200, whole).write(CONTENT.subarray(0, 1_000));
      setTimeout(() => response.end(CONTENT.subarray(1_000)), 2 * connectMs);
    });
    await withDirectory((directory) => pull(standIn, directory, { limits: { connectMs } }));
    expect(layerRequests()).toHaveLength(1);
  });

  test("of a connection that is not made is up", async () => {
    const dial = () => new Promise<never>(() => {});
    const error = await failureOfPull(standIn, { dial, limits: { connectMs: 50, retries: 0 } });
    expect(error).toMatchObject({ code: "timed_out" });
  });

  test("of a handshake that is not made is up", async () => {
    await using silent = createServer((socket) => socket.resume());
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const { port } = silent.address() as AddressInfo;
    const error = await failureOfPull(standIn, {
      dial: async () => connect(port, "127.0.0.1"),
      limits: { connectMs: 100, retries: 0 },
    });
    expect(error).toMatchObject({ code: "timed_out" });
  });
});

describe("a registry that limits its requests", () => {
  test.each([
    ["7", 7_000],
    ["999999999", 24 * 3_600_000],
    ["soon", undefined],
    ["-1", undefined],
    [undefined, undefined],
  ])("is not asked again, and says when: %s", async (value, retryAfterMs) => {
    const headers = value === undefined ? {} : { "retry-after": value };
    standIn.serve(REGISTRY, (_, response) => void response.writeHead(429, headers).end());
    const error: RegistryError = await failureOfPull(standIn);
    expect(error).toMatchObject({ code: "rate_limited", isTransient: true });
    expect(error.retryAfterMs).toBe(retryAfterMs);
    expect(standIn.requests).toHaveLength(1);
  });

  test("keeps what it has sent for the next pull", async () => {
    serveLayer((_, response, attempt) => {
      if (attempt === 1) void breakAfter(response, CONTENT.subarray(0, 900_000));
      else response.writeHead(429).end();
    });
    await withDirectory(async (directory) => {
      await expect(pull(standIn, directory)).rejects.toMatchObject({ code: "rate_limited" });
      serveLayer(right);
      standIn.requests.length = 0;
      await pull(standIn, directory);
      expect(layerRequests()[0]?.range).toMatch(/^bytes=\d+-$/);
    });
  });
});

describe("a host", () => {
  test("with a certificate of an unknown authority is not asked", async () => {
    standIn.serve(REGISTRY, serveImage(image));
    const error = await failureOfPull(standIn, { ca: undefined });
    expect(error).toMatchObject({
      code: "unreachable",
      message: expect.stringContaining("no valid certificate"),
    });
    expect(standIn.requests).toEqual([]);
  });

  test("with a certificate of another name is not asked", async () => {
    standIn.serve("other.example.com", serveImage(image));
    const { dial } = standIn;
    const error = await failureOfPull(standIn, {
      // The name in the handshake stays the registry's; the address is that of a server without its certificate.
      reference: `registry.example.com/${REPOSITORY}`,
      ca: rootCertificates[0],
      dial: (_, port, signal) => dial("other.example.com", port, signal),
    });
    expect(error).toMatchObject({ code: "unreachable" });
    expect(standIn.requests).toEqual([]);
  });

  test("of a private address is not asked unless the caller's dial says so", async () => {
    const reference = `127.0.0.1:5000/${REPOSITORY}`;
    expect(await failureOfPull(standIn, { reference, dial: undefined })).toMatchObject({
      code: "address_refused",
    });
    expect(await failureOfPull(standIn, { reference, dial: undefined, isInsecure: true })).toMatchObject({
      code: "address_refused",
    });
  });

  test("of a private address is not reached by a redirect", async () => {
    standIn.serve(
      REGISTRY,
      (_, response) => void response.writeHead(302, { location: "https://169.254.169.254/" }).end(),
    );
    const error = await failureOfPull(standIn, {
      dial: (host, port, signal) => (host === REGISTRY ? standIn.dial : dialPublic)(host, port, signal),
    });
    expect(error).toMatchObject({ code: "address_refused" });
  });
});
