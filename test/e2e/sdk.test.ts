/** The SDK inside real machines: files, processes, terminals, tunnels and code contexts. */
import { createHash, randomBytes } from "node:crypto";
import type { Session } from "@vivarium/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { client, sh } from "../support/http.ts";

const MIB = 1024 * 1024;
/** One session for all tests: each leaves an empty workspace. */
let id: string;
let session: Session;
beforeAll(async () => {
  ({ session_id: id } = await client.sessions.create({ on_pty_detach: "keep_live" }));
  session = await client.sessions.waitUntilLive(id).then(() => client.session(id));
});
afterAll(() => client.sessions.delete(id));
const text = (bytes: Uint8Array) => Buffer.from(bytes).toString();

async function* pieces(content: Buffer, bytes: number) {
  for (let at = 0; at < content.length; at += bytes) yield content.subarray(at, at + bytes);
}

describe("files", () => {
  test("are written, read, listed, found, searched, renamed and deleted", async () => {
    const { files } = session;
    expect(await files.write("src/a.txt", "one\ntwo\n")).toEqual({ path: "src/a.txt", bytes: 8 });
    await files.write("src/b.bin", Uint8Array.of(0, 255));
    await files.mkdir("src/empty");
    expect(await files.read("src/a.txt")).toBe("one\ntwo\n");
    expect([...(await files.readBytes("src/b.bin"))]).toEqual([0, 255]);
    expect(await files.list("src")).toEqual({ entries: ["a.txt", "b.bin", "empty/"] });
    expect((await files.find("src/**")).paths).toEqual(["/workspace/src/a.txt", "/workspace/src/b.bin"]);
    expect((await files.grep("^TW", { contextLines: 1 })).matches).toEqual([
      { path: "/workspace/src/a.txt", line_number: 2, line: "two", before: ["one"] },
    ]);
    const { results } = await files.writeBatch([
      { path: "c.txt", content: "c" },
      { path: "../../etc/x", content: "x" },
    ]);
    expect(results.map(({ ok }) => ok)).toEqual([true, false]);
    await files.rename("c.txt", "deep/er/c.txt");
    await expect(files.delete("src")).rejects.toMatchObject({ code: "conflict", retryable: false });
    await files.delete("src", { recursive: true });
    expect(await files.list()).toEqual({ entries: ["deep/"] });
    await expect(files.read("src/a.txt")).rejects.toMatchObject({ code: "not_found" });
    await files.delete("deep", { recursive: true });
  });

  test("go up as a stream and come down the same", async () => {
    const { files } = session;
    const content = randomBytes(6 * MIB);
    const sha256 = createHash("sha256").update(content).digest("hex");
    const uploaded = await files.upload("big", pieces(content, 100_000));
    expect(uploaded).toMatchObject({ path: "big", bytes: content.length, sha256 });
    const hash = createHash("sha256");
    for await (const chunk of files.readStream("big")) hash.update(chunk);
    expect(hash.digest("hex")).toBe(sha256);
    await files.delete("big");
  });

  test("an aborted upload leaves nothing", async () => {
    const { files } = session;
    const abort = new AbortController();
    async function* endless() {
      for (let n = 0; ; n++) {
        if (n === 64) abort.abort();
        yield new Uint8Array(65_536);
      }
    }
    const upload = files.upload("half", endless(), { signal: abort.signal });
    await expect(upload).rejects.toMatchObject({ name: "AbortError" });
    await expect.poll(() => files.list()).toEqual({ entries: [] });
  });
});

describe("processes", () => {
  test("are started, followed to their end, and keep their exit code", async () => {
    const { processes } = session;
    const command = sh("echo out; echo err >&2; sleep 0.3; exit 5");
    expect(await processes.start({ name: "job", command })).toMatchObject({
      name: "job",
      state: "running",
    });
    const chunks = await Array.fromAsync(processes.followLogs("job"));
    expect(chunks.map(({ stream, data }) => [stream, text(data)]).sort()).toEqual([
      ["stderr", "err\n"],
      ["stdout", "out\n"],
    ]);
    expect(await processes.waitForExit("job")).toMatchObject({ state: "exited", exit_code: 5 });
    expect(await processes.logs("job")).toMatchObject({ stdout: "out\n", stderr: "err\n" });
  });

  test("are killed, and a follow of one ends when its session is paused", async () => {
    const { processes } = session;
    await processes.start({ name: "long", command: sh("echo up; sleep 3173") });
    const follow = processes.followLogs("long");
    expect(text((await follow.next()).value?.data ?? new Uint8Array())).toBe("up\n");
    const ended = expect(follow.next()).rejects.toMatchObject({ code: "log_failed" });
    await client.sessions.pause(id);
    await ended;
    expect(await processes.get("long")).toMatchObject({ state: "running" });
    expect(await processes.kill("long")).toMatchObject({ state: "exited", exit_code: 143 });
  });
});

describe("terminals and tunnels", () => {
  test("a terminal has its size and kind, takes input, and ends with the exit code", async () => {
    const cmd = sh("stty size; echo $TERM; read line; echo got $line; exit 7");
    const terminal = await session.terminal({ rows: 40, cols: 120, term: "xterm", cmd });
    await terminal.write("abc\n");
    const output = text(Buffer.concat(await Array.fromAsync(terminal)));
    expect(output).toContain("40 120\r\nxterm\r\n");
    expect(output).toContain("got abc\r\n");
    expect(await terminal.exit).toBe(7);
  });

  test("a signal ends what runs in it, as 128 and its number", async () => {
    const terminal = await session.terminal({ cmd: sh("echo up; exec sleep 3174") });
    for await (const chunk of terminal) if (text(chunk).includes("up")) break;
    await terminal.signal(15);
    expect(await terminal.exit).toBe(143);
  });

  test("a pause disconnects a terminal", async () => {
    const terminal = await session.terminal({ cmd: ["cat"] });
    await client.sessions.pause(id);
    await expect(terminal.exit).rejects.toMatchObject({ code: "disconnected" });
  });

  test("a tunnel leads to an SSH server", async () => {
    const tunnel = await session.tunnel();
    for await (const chunk of tunnel) {
      expect(text(chunk)).toMatch(/^SSH-2\.0-/);
      break;
    }
  });
});

describe("code contexts", () => {
  test("run code with rich results, errors and streamed output", async () => {
    const seen: string[] = [];
    const shown = await session.runCode("print('hi')\n{'a': 1}", {
      onStdout: (out) => void seen.push(out),
    });
    expect(seen.join("")).toBe("hi\n");
    expect(shown.results.map(({ type, data }) => [type, data])).toEqual([
      ["text/plain", "{'a': 1}"],
      ["application/json", { a: 1 }],
    ]);
    expect((await session.runCode("1/0")).error).toMatchObject({ name: "ZeroDivisionError" });
    const late = await session.runCode("while True: pass", { timeoutMs: 1000 });
    expect(late).toMatchObject({ timed_out: true, error: { name: "KeyboardInterrupt" } });
    await expect(session.runCode("import os; os._exit(3)")).rejects.toMatchObject({ code: "kernel_died" });
    expect((await session.runCode("6 * 7")).results[0]?.data).toBe("42");
  });

  test("keep their variables through a pause, and into a fork", async () => {
    await session.runCode("kept = [1]");
    await client.sessions.pause(id);
    expect((await session.runCode("kept")).results[0]?.data).toBe("[1]");
    const { children } = await client.sessions.fork(id);
    const child = client.session(children[0] ?? "");
    try {
      await child.runCode("kept.append(2)");
      expect((await child.runCode("kept")).results[0]?.data).toBe("[1, 2]");
      expect((await session.runCode("kept")).results[0]?.data).toBe("[1]");
    } finally {
      await client.sessions.delete(child.id);
    }
  });

  test("a pause in the middle of a run ends the call, not the code", async () => {
    const { promise: isRunning, resolve: running } = Promise.withResolvers<void>();
    const code =
      "import os, time\nprint('in')\nwhile not os.path.exists('go'): time.sleep(.1)\nfinished = True";
    const run = session.runCode(code, { onStdout: () => running() });
    const refused = expect(run).rejects.toMatchObject({ code: "exec_failed" });
    await isRunning;
    await client.sessions.pause(id);
    await refused;
    await session.files.write("go", "");
    expect((await session.runCode("finished")).results[0]?.data).toBe("True");
  });
});
