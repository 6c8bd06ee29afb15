import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough, Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { bodyOf, json, serve } from "../../test-support/server.ts";
import { longFetch } from "../long-fetch.ts";

const FILES = "/v1/sessions/s1/files";
const FETCHES = [
  ["fetch", undefined],
  ["longFetch", longFetch],
] as const;

async function temporaryDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "sdk-files-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  return directory;
}

/** Takes uploads as the service does, and records all requests. */
async function serveUploads(fetch?: typeof longFetch) {
  const uploads: Buffer[] = [];
  const server = await serve(
    async (request, response) => {
      const content = await bodyOf(request);
      uploads.push(content);
      const sha256 = createHash("sha256").update(content).digest("hex");
      json(response, { path: "p", bytes: content.length, sha256, duration_ms: 1 });
    },
    { fetch },
  );
  return { ...server, uploads };
}

test("every operation sends what the interface says and returns its answer", async () => {
  const seen: unknown[] = [];
  const answer = {
    content: "aGk=",
    encoding: "base64",
    entries: ["a"],
    paths: ["/workspace/a"],
    matches: [],
    results: [],
  };
  const { session } = await serve(async (request, response) => {
    const body = (await bodyOf(request)).toString();
    seen.push([request.method, request.url, ...(body === "" ? [] : [JSON.parse(body)])]);
    json(response, answer);
  });
  const { files } = session;
  expect(await files.read("a b.txt")).toBe("aGk=");
  expect(Buffer.from(await files.readBytes("x")).toString()).toBe("hi");
  expect(await files.list()).toEqual(answer);
  expect(await files.list("src")).toEqual(answer);
  expect(await files.find("*.ts", { path: "src", maxResults: 5 })).toEqual(answer);
  await files.grep("a+", {
    path: "src",
    maxResults: 2,
    filePattern: "*.ts",
    caseSensitive: true,
    contextLines: 3,
    excludeDirs: ["node_modules", ".git"],
  });
  await files.grep("b");
  await files.write("t", "text");
  await files.write("b", Uint8Array.of(255, 0));
  await files.writeBatch([
    { path: "1", content: "one" },
    { path: "2", content: Uint8Array.of(1) },
  ]);
  await files.delete("d", { recursive: true });
  await files.delete("f");
  await files.mkdir("m/n");
  await files.rename("from", "to");
  expect(seen).toEqual([
    ["GET", `${FILES}?op=read&path=a+b.txt`],
    ["GET", `${FILES}?op=read&path=x&encoding=base64`],
    ["GET", `${FILES}?op=list`],
    ["GET", `${FILES}?op=list&path=src`],
    ["GET", `${FILES}?op=find&pattern=*.ts&path=src&max_results=5`],
    [
      "GET",
      `${FILES}?op=grep&pattern=a%2B&path=src&max_results=2&file_pattern=*.ts&case_sensitive=true&context_lines=3&exclude_dirs=node_modules%2C.git`,
    ],
    ["GET", `${FILES}?op=grep&pattern=b`],
    ["PUT", FILES, { path: "t", content: "text" }],
    ["PUT", FILES, { path: "b", content: "/wA=", encoding: "base64" }],
    [
      "PUT",
      `${FILES}/batch`,
      {
        files: [
          { path: "1", content: "one" },
          { path: "2", content: "AQ==", encoding: "base64" },
        ],
      },
    ],
    ["DELETE", `${FILES}?path=d&recursive=true`],
    ["DELETE", `${FILES}?path=f`],
    ["POST", `${FILES}/mkdir`, { path: "m/n" }],
    ["POST", `${FILES}/rename`, { path: "from", dest_path: "to" }],
  ]);
});

test("a refusal is the error of the interface", async () => {
  const { session } = await serve((_request, response) =>
    json(response, { error: "gone: no such file or directory", code: "not_found" }, 404),
  );
  const refusal = { code: "not_found", status: 404, retryable: false };
  await expect(session.files.read("gone")).rejects.toMatchObject(refusal);
  await expect(session.files.readStream("gone").next()).rejects.toMatchObject(refusal);
  await expect(session.files.upload("gone", Uint8Array.of(1))).rejects.toMatchObject(refusal);
});

test("reads and whole writes are repeated after a lost connection, delete and rename are not", async () => {
  let requests = 0;
  const { session } = await serve((request) => {
    requests++;
    request.socket.destroy();
  });
  const { files } = session;
  for (const repeat of [() => files.read("x"), () => files.write("x", ""), () => files.mkdir("x")]) {
    requests = 0;
    await expect(repeat()).rejects.toMatchObject({ code: "connection_failed" });
    expect(requests).toBe(4);
  }
  for (const once of [() => files.delete("x"), () => files.rename("x", "y")]) {
    requests = 0;
    await expect(once()).rejects.toMatchObject({ code: "connection_failed" });
    expect(requests).toBe(1);
  }
});

test.each(FETCHES)(
  "uploads bytes, Blobs, streams, iterables and local files whole, over %s",
  async (_name, fetch) => {
    const { session, uploads } = await serveUploads(fetch);
    const content = randomBytes(300_000);
    const local = join(await temporaryDirectory(), "local");
    await writeFile(local, content);
    async function* pieces() {
      yield content.subarray(0, 100_000);
      yield new Uint8Array();
      yield content.subarray(100_000);
    }
    const sources = [
      new Uint8Array(content),
      new Blob([content]),
      Readable.from(pieces()),
      new Blob([content]).stream(),
      pieces(),
      { file: local },
    ];
    const sha256 = createHash("sha256").update(content).digest("hex");
    for (const source of sources) {
      expect(await session.files.upload("p", source)).toMatchObject({ bytes: 300_000, sha256 });
    }
    expect(uploads.map((upload) => upload.equals(content))).toEqual(sources.map(() => true));
  },
);

test.each(FETCHES)(
  "an upload reads its source only as fast as the service takes it, over %s",
  async (_name, fetch) => {
    const { promise: mayRead, resolve: read } = Promise.withResolvers<void>();
    const { session } = await serve(
      async (request, response) => {
        await mayRead;
        json(response, { path: "p", bytes: (await bodyOf(request)).length, sha256: "", duration_ms: 1 });
      },
      { fetch },
    );
    const total = 64;
    let given = 0;
    async function* endless() {
      for (; given < total; given++) yield new Uint8Array(1024 * 1024);
    }
    const upload = session.files.upload("p", endless());
    await delay(500);
    // More than sockets and buffers contain, far from the whole file.
    expect(given).toBeLessThan(total / 2);
    read();
    expect(await upload).toMatchObject({ bytes: total * 1024 * 1024 });
  },
);

test.each(FETCHES)(
  "an upload of a stream is not repeated once something was read of it, over %s",
  async (_name, fetch) => {
    let requests = 0;
    const { session } = await serve(
      (request) => {
        requests++;
        request.once("data", () => request.socket.destroy());
      },
      { fetch },
    );
    async function* pieces() {
      for (;;) yield new Uint8Array(100_000);
    }
    await expect(session.files.upload("p", pieces())).rejects.toMatchObject({ code: "connection_failed" });
    expect(requests).toBe(1);
    await expect(session.files.upload("p", new Uint8Array(100_000))).rejects.toMatchObject({
      code: "connection_failed",
    });
    expect(requests).toBe(5);
  },
);

test("an upload of a stream that nothing was read of goes another way once there is one", async () => {
  const { url, uploads } = await serveUploads();
  let attempts = 0;
  const { session } = await serve(() => undefined, {
    url,
    fetch: (address, init) => fetch(++attempts < 3 ? "http://127.0.0.1:1/nothing-listens" : address, init),
  });
  async function* pieces() {
    yield new TextEncoder().encode("whole");
  }
  expect(await session.files.upload("p", pieces())).toMatchObject({ bytes: 5 });
  expect([attempts, uploads.toString()]).toEqual([3, "whole"]);
});

test("a source of text is refused, not sent as nothing", async () => {
  const { session } = await serveUploads();
  await expect(session.files.upload("p", Readable.from(["some", "text"]))).rejects.toThrow("expected bytes");
});

test("a file that hides its size, a pipe and an empty file are sent as what is read of them", async () => {
  const { session, uploads } = await serveUploads();
  const directory = await temporaryDirectory();
  const pipe = join(directory, "pipe");
  await promisify(execFile)("mkfifo", [pipe]);
  const writing = writeFile(pipe, "through a pipe");
  await session.files.upload("p", { file: pipe });
  await writing;
  expect(uploads.at(-1)?.toString()).toBe("through a pipe");
  await session.files.upload("p", { file: "/proc/version" });
  expect(uploads.at(-1)?.toString()).toBe(await readFile("/proc/version", "utf8"));
  await writeFile(join(directory, "empty"), "");
  expect(await session.files.upload("p", { file: join(directory, "empty") })).toMatchObject({ bytes: 0 });
});

test("a stream that fails while the connection is being made rejects the upload, and nothing else", async () => {
  const { url } = await serveUploads();
  const source = createReadStream("/nonexistent");
  const failed = new Promise<void>((resolve) => source.once("close", resolve));
  const { session } = await serve(() => undefined, {
    url,
    fetch: async (address, init) => {
      await failed;
      return fetch(address, init);
    },
  });
  await expect(session.files.upload("p", source)).rejects.toMatchObject({ code: "ENOENT" });
});

test("a local file that is missing, or a directory, rejects with the reason", async () => {
  const { session } = await serveUploads();
  await expect(session.files.upload("p", { file: "/nonexistent" })).rejects.toMatchObject({ code: "ENOENT" });
  await expect(session.files.upload("p", { file: "/" })).rejects.toMatchObject({ code: "EISDIR" });
});

test.each(FETCHES)(
  "a source that fails rejects the upload with its own error, over %s",
  async (_name, fetch) => {
    const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
    const { promise: broken, resolve: breakOff } = Promise.withResolvers<void>();
    const { session } = await serve(
      (request) => void request.on("close", breakOff).once("data", arrive).resume(),
      { fetch },
    );
    const failure = new Error("the disk is on fire");
    async function* pieces() {
      yield new Uint8Array(10);
      await arrived;
      throw failure;
    }
    await expect(session.files.upload("p", pieces())).rejects.toBe(failure);
    await broken;
  },
);

test.each(FETCHES)(
  "aborting an upload ends the request and lets go of the source, over %s",
  async (_name, fetch) => {
    const { promise: broken, resolve: breakOff } = Promise.withResolvers<void>();
    const { promise: arrived, resolve: arrive } = Promise.withResolvers<void>();
    const { session } = await serve(
      (request) => void request.on("close", breakOff).once("data", arrive).resume(),
      { fetch },
    );
    const { promise: released, resolve: release } = Promise.withResolvers<void>();
    const abort = new AbortController();
    async function* pieces() {
      try {
        for (;;) {
          yield new Uint8Array(1000);
          await delay(5);
        }
      } finally {
        release();
      }
    }
    const upload = session.files.upload("p", pieces(), { signal: abort.signal });
    // A request that is aborted before it arrives has no end there.
    void arrived.then(() => abort.abort());
    await expect(upload).rejects.toMatchObject({ name: "AbortError" });
    await broken;
    await released;
  },
);

test.each(FETCHES)("a download is saved whole, with its size and sum, over %s", async (_name, fetch) => {
  const content = randomBytes(500_000);
  const { session } = await serve((_request, response) => void response.end(content), { fetch });
  const directory = await temporaryDirectory();
  const saved = await session.files.download("p", join(directory, "copy"));
  const sha256 = createHash("sha256").update(content).digest("hex");
  expect(saved).toEqual({ bytes: 500_000, sha256 });
  expect((await readFile(join(directory, "copy"))).equals(content)).toBe(true);
  expect(await readdir(directory)).toEqual(["copy"]);
});

test.each(FETCHES)(
  "a download that breaks off is an error and leaves the old file, over %s",
  async (_name, fetch) => {
    const { session } = await serve(
      (_request, response) => {
        response.writeHead(200, { "content-length": "1000" });
        response.write("half");
        setTimeout(() => response.destroy(), 50);
      },
      { fetch },
    );
    const directory = await temporaryDirectory();
    const file = join(directory, "copy");
    await writeFile(file, "old");
    await expect(session.files.download("p", file)).rejects.toMatchObject({
      code: "stream_interrupted",
      retryable: true,
    });
    expect(await readFile(file, "utf8")).toBe("old");
    expect(await readdir(directory)).toEqual(["copy"]);
  },
);

test("leaving a download's loop ends the request", async () => {
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  const { session } = await serve((_request, response) => {
    response.on("close", close);
    response.write("first");
  });
  for await (const chunk of session.files.readStream("p")) {
    expect(Buffer.from(chunk).toString()).toBe("first");
    break;
  }
  await closed;
});

test("a stream that an upload did not read to its end is closed", async () => {
  const { session: unreachable } = await serve(() => undefined, { url: "http://127.0.0.1:9" });
  const unread = createReadStream("/proc/version");
  await expect(unreachable.files.upload("p", unread)).rejects.toMatchObject({ status: 0 });
  expect(unread.destroyed).toBe(true);

  const { session } = await serveUploads();
  const silent = new PassThrough();
  const signal = AbortSignal.timeout(200);
  await expect(session.files.upload("p", silent, { signal })).rejects.toMatchObject({ name: "TimeoutError" });
  expect(silent.destroyed).toBe(true);
});
