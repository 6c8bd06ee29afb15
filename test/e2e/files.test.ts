/** The interface's file rules and wire.md 6, each against a real machine. */
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { residentBytes } from "../support/host-processes.ts";
import { ask, client, service } from "../support/http.ts";
import { servicePid } from "../support/service.ts";
import { size } from "../support/sizes.ts";

const MIB = 2 ** 20;
const GROWTH_MIB = 64;
/** Were it kept as a whole anywhere, memory would grow by more than it may. */
const LARGE_MIB = size({ ci: 256, full: 2048 });
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

  test("4 MiB are read as a whole, one byte more is payload_too_large", async () => {
    await run(`cd /workspace; head -c ${4 * MIB} /dev/zero > most; head -c ${4 * MIB + 1} /dev/zero > over`);
    expect(String(await read("most")).length).toBe(4 * MIB);
    expect((await get({ path: "over" })).body.code).toBe("payload_too_large");
  });

  test.each([
    ["missing", 404, "not_found", "path: no such file or directory"],
    ["w/deep/a.txt/x", 404, "not_found", "path: not a directory"],
    ["w", 400, "validation", "path: is a directory"],
    ["fifo", 400, "validation", "path: not a regular file"],
    ["zero", 400, "validation", "path: path must be under /workspace"],
    ["secret", 400, "validation", "path: permission denied"],
  ])("read of %s is %i %s", async (path, ...expected) => {
    await put("w/deep/a.txt", "hello\n");
    await run(
      "cd /workspace; test -p fifo || mkfifo fifo; ln -sfn /dev/zero zero; sudo rm -f secret; sudo install -m 600 /dev/null secret",
    );
    expect(outcome(await get({ path }))).toEqual(expected);
  });
});

describe("list", () => {
  test("names are in byte order, hidden ones included, directories with a slash", async () => {
    await run(
      "mkdir -p /workspace/l/d; cd /workspace/l; touch b .a Z; ln -sfn d link; ln -sfn nowhere dangling",
    );
    expect((await get({ op: "list", path: "l" })).body).toEqual({
      entries: [".a", "Z", "b", "d/", "dangling", "link/"],
    });
    expect(outcome(await get({ op: "list", path: "l/b" }))).toEqual([
      400,
      "validation",
      "path: not a directory",
    ]);
  });

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

describe("find and grep", () => {
  beforeAll(() =>
    run(
      "mkdir -p /workspace/s/in/deep /workspace/s/skip; cd /workspace/s; echo Alpha > a.py; printf 'one\\nBETA beta\\nthree\\n' > in/b.py; echo alpha > in/deep/c.txt; echo alpha > skip/d.py; printf 'al\\0pha alpha' > bin; ln -sfn in loop",
    ),
  );
  const found = async (query: Record<string, string>) => {
    const { body } = await get({ op: "find", path: "s", ...query });
    return (body.paths as string[]).map((path) => path.replace("/workspace/s/", ""));
  };

  test.each([
    ["a.py", ["a.py"]],
    ["*.py", ["a.py"]],
    ["?.py", ["a.py"]],
    ["[ab].py", ["a.py"]],
    ["*/*.py", ["in/b.py", "skip/d.py"]],
    ["in/**", ["in/b.py", "in/deep/c.txt"]],
    ["**/*.py", ["a.py", "in/b.py", "skip/d.py"]],
    ["nothing", []],
  ])("find %s", async (pattern, expected) => {
    expect(await found({ pattern })).toEqual(expected);
  });

  test("hitting max_results is told, and is no error", async () => {
    const { status, body } = await get({ op: "find", path: "s", pattern: "**/*.py", max_results: "2" });
    expect([status, (body.paths as string[]).length, body.truncated, body.path]).toEqual([200, 2, true, "s"]);
  });

  const grep = async (query: Record<string, string>) => (await get({ op: "grep", path: "s", ...query })).body;

  test("grep ignores case, skips binaries, and orders by path", async () => {
    const body = await grep({ pattern: "^alpha" });
    expect(body).toMatchObject({ truncated: false, files_searched: 4, path: "s" });
    expect(body.matches).toEqual([
      { path: "/workspace/s/a.py", line_number: 1, line: "Alpha" },
      { path: "/workspace/s/in/deep/c.txt", line_number: 1, line: "alpha" },
      { path: "/workspace/s/skip/d.py", line_number: 1, line: "alpha" },
    ]);
  });

  test("grep has case, context, names and directories to leave out", async () => {
    expect(
      (await grep({ pattern: "alpha", case_sensitive: "true", exclude_dirs: "skip,other" })).matches,
    ).toEqual([{ path: "/workspace/s/in/deep/c.txt", line_number: 1, line: "alpha" }]);
    expect((await grep({ pattern: "beta", context_lines: "1", file_pattern: "*.py" })).matches).toEqual([
      { path: "/workspace/s/in/b.py", line_number: 2, line: "BETA beta", before: ["one"], after: ["three"] },
    ]);
    const limited = await grep({ pattern: "alpha", max_results: "1" });
    expect([(limited.matches as unknown[]).length, limited.truncated]).toEqual([1, true]);
  });

  test.each(["(?=x)", "(a)\\1", "(", "[z-a]", "*"])("the pattern %s is 400 and named", async (pattern) => {
    const { status, body } = await get({ op: "grep", path: "s", pattern });
    expect([status, body.code]).toEqual([400, "validation"]);
    expect(body.error).toMatch(/^pattern: \S/);
  });

  test.each([
    "(a+)+$",
    "(a|a)*b",
    "(.*a){20}",
    "(x+x+)+y",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "(a*)*b",
    "((a|aa)+)+b",
    "(.*)*x(.*)*y",
    "(\\w+\\s?)+!$",
    `${"a?".repeat(30)}${"a".repeat(30)}b`,
  ])("the pattern %s stays linear on a megabyte of one line", async (pattern) => {
    await run(`cd /workspace; mkdir -p n; head -c ${MIB} /dev/zero | tr '\\0' a > n/line`);
    const { status, body } = await get({ op: "grep", path: "n", pattern });
    expect([status, body.files_searched]).toEqual([200, 1]);
  });

  test("a tree of more than 10,000 files ends the search with truncated", async () => {
    await run("mkdir -p /workspace/many; cd /workspace/many; seq 1 10050 | xargs touch");
    expect((await get({ op: "find", path: "many", pattern: "none*" })).body).toMatchObject({
      paths: [],
      truncated: true,
    });
    expect((await get({ op: "grep", path: "many", pattern: "none" })).body).toMatchObject({
      matches: [],
      truncated: true,
      files_searched: 10_000,
    });
  });
});

describe("delete, mkdir and rename", () => {
  test("a directory that is not empty wants recursive; a link goes, its target stays", async () => {
    await run(
      "mkdir -p /workspace/del/full /workspace/del/empty; cd /workspace/del; touch full/x keep; ln -sfn keep link",
    );
    expect(outcome(await remove("del/full"))).toEqual([409, "conflict", "path: directory not empty"]);
    expect((await remove("del/full", true)).body).toEqual({ ok: true, path: "del/full" });
    expect((await remove("del/empty")).status).toBe(200);
    expect((await remove("del/link")).status).toBe(200);
    expect((await get({ op: "list", path: "del" })).body).toEqual({ entries: ["keep"] });
    expect(outcome(await remove("del/none"))).toEqual([404, "not_found", "path: no such file or directory"]);
  });

  test.each(["/workspace", "/workspace/.", "//workspace/", ".", "del/.."])(
    "%s is never removed",
    async (path) => {
      await mkdir("del");
      const { status, body } = await remove(path, true);
      expect([status, body.code]).toEqual([400, "validation"]);
      expect(body.error).toMatch(/workspace root/);
      expect((await rename(path, "elsewhere")).body).toEqual(body);
    },
  );

  test("mkdir makes parents, accepts a directory, and refuses a file", async () => {
    expect((await mkdir("m/k/d")).body).toEqual({ path: "m/k/d" });
    expect((await mkdir("m/k")).status).toBe(200);
    await put("m/file", "");
    expect(outcome(await mkdir("m/file"))).toEqual([409, "conflict", "path: file exists"]);
    expect(await run("stat -c '%U %a' /workspace/m/k/d")).toBe("sandbox 755");
  });

  test("rename makes the destination's parents and replaces a file", async () => {
    await put("r/a", "a");
    await put("r/b", "b");
    expect((await rename("r/a", "r/b")).body).toEqual({ path: "r/a", dest_path: "r/b" });
    expect((await rename("r/b", "r/x/y/z")).status).toBe(200);
    expect(await read("r/x/y/z")).toBe("a");
    await put("r/full/x", "");
    await mkdir("r/empty");
    const notEmpty = [409, "conflict", "dest_path: directory not empty"];
    expect(outcome(await rename("r/empty", "r/full"))).toEqual(notEmpty);
    expect(outcome(await rename("r/x/y/z", "r/full"))).toEqual(notEmpty);
    expect(outcome(await rename("r/missing", "r/new"))).toEqual([
      404,
      "not_found",
      "path: no such file or directory",
    ]);
  });
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

  test("65 files write nothing", async () => {
    const body = {
      files: Array.from({ length: 65 }, (_, index) => ({ path: `too-many/${index}`, content: "" })),
    };
    expect((await files("/batch", { method: "PUT", body })).status).toBe(400);
    expect(outcome(await get({ op: "list", path: "too-many" }))[0]).toBe(404);
  });
});

describe("streams", () => {
  test.each([0, 1, 5 * MIB + 3])("%i bytes go up and come down as they are", async (size) => {
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
    setTimeout(() => leaving.abort(), 1000);
    await expect(upload).rejects.toThrow();
    await expect
      .poll(async () => (await get({ op: "list", path: "cut" })).body, { timeout: 10_000 })
      .toEqual({
        entries: ["file"],
      });
    expect(await read("cut/file")).toBe("old");
  });

  test("what is wrong with a download is told before any byte", async () => {
    const answer = await stream("missing");
    expect([answer.status, await answer.json()]).toEqual([
      404,
      { error: "path: no such file or directory", code: "not_found" },
    ]);
  });

  test(`${LARGE_MIB} MiB go through while memory stays flat in control, node and agent`, {
    timeout: 1_800_000,
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

test("a full disk is 409 with its words, the agent lives, and deleting helps", {
  timeout: 300_000,
}, async () => {
  await run("sudo mkdir -p /workspace/small; sudo mount -t tmpfs -o size=1m,mode=777 none /workspace/small");
  expect(outcome(await put("small/a", "x".repeat(2 * MIB)))).toEqual([
    409,
    "conflict",
    "path: no space left on device",
  ]);
  expect((await get({ op: "list", path: "small" })).body).toEqual({ entries: [] });
  expect((await put("small/a", "x")).status).toBe(200);
  await run("sudo mount -o remount,ro /workspace/small");
  expect(outcome(await put("small/a", "y"))).toEqual([400, "validation", "path: read-only file system"]);
  await run("sudo umount /workspace/small");
});
