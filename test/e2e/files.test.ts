/**
 * Files of a session through the whole service: bytes, modes, sizes, cut-offs, and paths that must not be reached. Each
 * rule is tested beside `guest/agent/src/files` and `packages/control/src/files`.
 */
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { residentBytes } from "../support/host-processes.ts";
import { ask, client, service } from "../support/http.ts";
import { servicePid } from "../support/service.ts";

const MIB = 2 ** 20;
const GROWTH_MIB = 64;
/** Hazard: a copy of the whole file in memory. Memory would grow by more than this. */
const LARGE_MIB = size({ ci: 80, full: 2048 });
let id: string;
beforeAll(async () => {
  id = (await client.sessions.create()).session_id;
  await client.sessions.waitUntilLive(id);
});
afterAll(async () => {
  await ask(`/v1/sessions/${id}`, { method: "DELETE" });
});

const files = (rest: string, options: Parameters<typeof ask>[1] = {}) =>
  ask(`/v1/sessions/${id}/files${rest}`, options);
const get = (query: Record<string, string>) => files(`?${new URLSearchParams(query)}`);
const put = (path: string, content: string, encoding?: string) =>
  files("", { method: "PUT", body: { path, content, encoding } });
const read = async (path: string) => (await get({ path })).body.content;
const remove = (path: string, recursive = false) =>
  files(`?${new URLSearchParams({ path, recursive: String(recursive) })}`, { method: "DELETE" });
const rename = (path: string, dest_path: string) =>
  files("/rename", { method: "POST", body: { path, dest_path } });
const mkdir = (path: string) => files("/mkdir", { method: "POST", body: { path } });
async function run(script: string): Promise<string> {
  const { stdout, stderr, exit_code } = await client.sessions.exec(id, { command: ["bash", "-c", script] });
  expect([exit_code, stderr]).toEqual([0, ""]);
  return stdout.trimEnd();
}
/** The most memory that the guest agent has ever had. */
const agentPeakKib = async () => Number(await run("awk '/^VmHWM/ {print $2}' /proc/1/status"));
const outcome = ({ status, body }: Awaited<ReturnType<typeof ask>>) => [status, body.code, body.error];
const stream = (path: string, init: RequestInit = {}) =>
  fetch(`${service.url}/v1/sessions/${id}/files/stream?${new URLSearchParams({ path })}`, {
    ...init,
    headers: { authorization: `Bearer ${service.apiKey}`, ...init.headers },
  });

describe("write and read", () => {
  test("files and parents belong to sandbox: 0644 and 0755", async () => {
    expect((await put("w/deep/a.txt", "hello\n")).body).toEqual({ path: "w/deep/a.txt", bytes: 6 });
    expect(await run("cd /workspace/w; stat -c '%U %G %a' . deep deep/a.txt")).toBe(
      "sandbox sandbox 755\nsandbox sandbox 755\nsandbox sandbox 644",
    );
    expect(await read("/workspace/w/deep/a.txt")).toBe("hello\n");
  });

  test("an existing file keeps its mode, and is exchanged as a whole", async () => {
    await run("cd /workspace; echo old > mode; chmod 600 mode; ln mode mode-old");
    await put("mode", "new");
    expect(
      await run("cd /workspace; stat -c %a mode; cat mode-old; ls -A | grep -c '^\\.mode' || true"),
    ).toBe("600\nold\n0");
  });

  test("bytes that are no UTF-8 survive as base64, and are U+FFFD as text", async () => {
    await put("bytes", "/wBh", "base64");
    expect((await get({ path: "bytes", encoding: "base64" })).body).toEqual({
      content: "/wBh",
      encoding: "base64",
    });
    expect(await read("bytes")).toBe("\ufffd\0a");
  });
});

describe("names and content", () => {
  test("odd names come back, and are found again by what they are shown as", async () => {
    await run("mkdir -p /workspace/odd; cd /workspace/odd; touch -- -rf $'new\\nline' $'\\xff\\xfe'");
    const { entries } = (await get({ op: "list", path: "odd" })).body as { entries: string[] };
    expect([...entries].sort()).toEqual(["-rf", "\\xff\\xfe", "new\nline"].sort());
    for (const name of entries) {
      expect((await get({ path: `odd/${name}` })).body).toEqual({ content: "" });
      expect((await remove(`odd/${name}`)).status).toBe(200);
    }
    expect((await get({ op: "list", path: "odd" })).body).toEqual({ entries: [] });
  });
});

test("a tree is searched, renamed with parents that are made, and deleted", async () => {
  await run(
    "mkdir -p /workspace/s/in; cd /workspace/s; echo Alpha > a.py; echo alpha > in/b.py; ln -sfn in loop",
  );
  const paths = ["/workspace/s/a.py", "/workspace/s/in/b.py"];
  expect((await get({ op: "find", path: "s", pattern: "**/*.py" })).body).toMatchObject({ paths });
  expect((await get({ op: "grep", path: "s", pattern: "^alpha" })).body.matches).toEqual(
    paths.map((path, index) => ({ path, line_number: 1, line: ["Alpha", "alpha"][index] })),
  );
  expect((await mkdir("m/k/d")).body).toEqual({ path: "m/k/d" });
  expect(await run("stat -c '%U %a' /workspace/m/k/d")).toBe("sandbox 755");
  expect((await rename("s/in/b.py", "s/x/y/z")).body).toEqual({ path: "s/in/b.py", dest_path: "s/x/y/z" });
  expect(await read("s/x/y/z")).toBe("alpha\n");
  expect(outcome(await remove("s"))).toEqual([409, "conflict", "path: directory not empty"]);
  expect((await remove("s", true)).body).toEqual({ ok: true, path: "s" });
  expect(outcome(await get({ path: "s/a.py" }))).toEqual([
    404,
    "not_found",
    "path: no such file or directory",
  ]);
});

describe("paths that lead out", () => {
  test("a link out of the workspace is refused for every operation, and nothing outside changes", async () => {
    await run(
      "ln -sfn /etc /workspace/out; ln -sfn /home/sandbox /workspace/home; ln -sfn /etc/hostname /workspace/file",
    );
    const answers = [
      await get({ path: "out/hostname" }),
      await get({ path: "file" }),
      await get({ op: "list", path: "out" }),
      await get({ op: "find", path: "home", pattern: "*" }),
      await get({ op: "grep", path: "out", pattern: "x" }),
      await put("home/new", "x"),
      await mkdir("home/dir"),
      await remove("home/.bashrc"),
    ];
    for (const answer of answers)
      expect(outcome(answer)).toEqual([400, "validation", "path: path must be under /workspace"]);
    await put("inside", "x");
    expect((await rename("inside", "home/inside")).body.error).toBe(
      "dest_path: path must be under /workspace",
    );
    expect(await run("ls /home/sandbox/new /home/sandbox/dir /home/sandbox/inside 2>/dev/null || true")).toBe(
      "",
    );
  });
});

describe("batch", () => {
  test("one wrong file among 64 fails alone", async () => {
    const names = Array.from({ length: 64 }, (_, index) => (index === 40 ? "/etc/x" : `batch/${index}`));
    const body = { files: names.map((path) => ({ path, content: path })) };
    const answer = await files("/batch", { method: "PUT", body });
    const results = answer.body.results as { path: string; ok: boolean; error?: string }[];
    expect(results.map(({ path }) => path)).toEqual(names);
    expect(results.filter(({ ok }) => !ok)).toEqual([
      { path: "/etc/x", ok: false, error: expect.stringMatching(/path must be under \/workspace/) },
    ]);
    expect(await run("ls /workspace/batch | wc -l; stat -c %U /workspace/batch/1")).toBe("63\nsandbox");
  });
});

describe("streams", () => {
  test.each([0, 5 * MIB + 3])("%i bytes go up and come down as they are", async (size) => {
    const bytes = randomBytes(size);
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    const up = await stream(`up-${size}`, { method: "PUT", body: bytes });
    expect(await up.json()).toEqual({
      path: `up-${size}`,
      bytes: size,
      sha256,
      duration_ms: expect.any(Number),
    });
    const down = await stream(`up-${size}`);
    expect([down.headers.get("content-length"), down.headers.get("content-type")]).toEqual([
      String(size),
      "application/octet-stream",
    ]);
    expect(Buffer.from(await down.arrayBuffer()).equals(bytes)).toBe(true);
  });

  test("an upload that is cut off leaves the old file, and no other", async () => {
    await put("cut/file", "old");
    const half = new Readable({ read() {} });
    half.push(Buffer.alloc(MIB));
    const leaving = new AbortController();
    const upload = stream("cut/file", {
      method: "PUT",
      body: Readable.toWeb(half) as ReadableStream,
      duplex: "half",
      signal: leaving.signal,
    } as RequestInit);
    setTimeout(() => leaving.abort(), 300);
    await expect(upload).rejects.toThrow();
    await expect
      .poll(async () => (await get({ op: "list", path: "cut" })).body)
      .toEqual({
        entries: ["file"],
      });
    expect(await read("cut/file")).toBe("old");
  });

  test(`${LARGE_MIB} MiB go through while memory stays flat in control, node and agent`, {
    timeout: 1_800_000 * SLOWNESS,
  }, async () => {
    const size = LARGE_MIB * MIB;
    const block = randomBytes(MIB);
    const pids = [servicePid(service, "control"), servicePid(service, "node")];
    const before = pids.map(residentBytes);
    const peak = [...before];
    const agentBefore = await agentPeakKib();
    const sampler = setInterval(() => {
      for (const [index, pid] of pids.entries()) peak[index] = Math.max(peak[index] ?? 0, residentBytes(pid));
    }, 200);
    const hash = createHash("sha256");
    async function* blocks() {
      for (let sent = 0; sent < size; sent += MIB) {
        hash.update(block);
        yield block;
      }
    }
    const body = Readable.toWeb(Readable.from(blocks())) as ReadableStream;
    const up = await stream("large", { method: "PUT", body, duplex: "half" } as RequestInit);
    const written = (await up.json()) as { bytes: number; sha256: string };
    expect(written).toMatchObject({ bytes: size, sha256: hash.digest("hex") });
    const back = createHash("sha256");
    for await (const chunk of (await stream("large")).body as unknown as AsyncIterable<Uint8Array>)
      back.update(chunk);
    clearInterval(sampler);
    expect(back.digest("hex")).toBe(written.sha256);
    for (const [index, bytes] of peak.entries())
      expect(bytes - (before[index] ?? 0)).toBeLessThan(GROWTH_MIB * MIB);
    expect(((await agentPeakKib()) - agentBefore) / 1024).toBeLessThan(GROWTH_MIB);
    await remove("large");
  });
});

test("files survive a pause, and the next call wakes the session", async () => {
  await put("kept", "still here");
  expect((await ask(`/v1/sessions/${id}/pause`, { method: "POST" })).body.state).toBe("paused");
  expect(await read("kept")).toBe("still here");
  expect((await ask(`/v1/sessions/${id}`)).body.state).toBe("live");
});
