/** The real kernel with this host's python3; the guest is a directory (test-support/code-guest.ts). */
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { describe, expect, test } from "vitest";
import { startGuest } from "../../test-support/code-guest.ts";
import { AWAIT_FILE, announced, valueIn } from "../../test-support/code-values.ts";
import { serve } from "../../test-support/server.ts";
import { Client } from "../client.ts";

/** For code that computes a lot. */
const PATIENT = { timeoutMs: 30_000 * SLOWNESS };

/** Ignores a zombie: a process that ended and that no parent has waited for yet. */
const isRunning = async (pid: number) => {
  const status = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ") Z");
  return !status.includes(") Z");
};

describe("a kernel outlives", () => {
  test.each([
    ["sys.exit", "import sys\nsys.exit(3)", { name: "SystemExit", value: "3" }],
    ["a raised KeyboardInterrupt", "raise KeyboardInterrupt", { name: "KeyboardInterrupt" }],
    ["recursion without end", "def f(): f()\nf()", { name: "RecursionError" }],
    ["reading from stdin", "input()", { name: "EOFError" }],
  ])("%s", async (_what, code, error) => {
    const { session } = await startGuest();
    await session.runCode("kept = 1");
    expect((await session.runCode(code)).error).toMatchObject(error);
    expect(await valueIn(session, "kept")).toBe("1");
  });

  test("closed and replaced outputs; what children print comes too", async () => {
    const { session } = await startGuest();
    await session.runCode("import os, sys\nos.close(1)\nos.close(2)\nsys.stdout.close()");
    const { stdout, stderr } = await session.runCode("print('still')\nos.system('echo child; echo bad >&2')");
    expect([stdout, stderr]).toEqual(["still\nchild\n", "bad\n"]);
  });

  test("code that forks: one of two processes continues", async () => {
    const { session } = await startGuest();
    const { stdout } = await session.runCode(
      "import os\npid = os.fork()\nif pid:\n  os.waitpid(pid, 0)\nprint('parent' if pid else 'child')",
    );
    expect(stdout).toBe("child\nparent\n");
    expect(await valueIn(session, "pid > 0")).toBe("True");
  });

  test("code that forks: the copy ends as a program of its own would", async () => {
    const { session } = await startGuest();
    const fork = (child: string) =>
      `import os, sys\npid = os.fork()\nif pid == 0:\n  ${child}\nelse:\n  print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))`;
    const ends = async (child: string) => {
      const { stdout, stderr } = await session.runCode(fork(child));
      return [stdout.trim(), stderr];
    };
    expect(await ends("pass")).toEqual(["0", ""]);
    expect(await ends("sys.exit(3)")).toEqual(["3", ""]);
    expect(await ends("sys.exit('bye')")).toEqual(["1", "bye\n"]);
    expect(await ends("1/0")).toEqual(["1", expect.stringContaining("ZeroDivisionError: division by zero")]);
  });

  test("threads that print between runs: the next one shows it", async () => {
    const { session, root } = await startGuest();
    const late = "def late():\n  await_file('go')\n  print('late')\n  open('printed', 'w').close()\n";
    await session.runCode(`import threading\n${AWAIT_FILE}${late}threading.Thread(target=late).start()`);
    await writeFile(join(root, "go"), "");
    await expect.poll(() => existsSync(join(root, "printed"))).toBe(true);
    expect((await session.runCode("1")).stdout).toBe("late\n");
  });

  test("megabytes of output: all of it is streamed, the first 4 MiB are kept", async () => {
    const { session } = await startGuest();
    let chars = 0;
    const result = await session.runCode("for _ in range(200): print('x' * 49_999)", {
      ...PATIENT,
      onStdout: (text) => {
        chars += text.length;
      },
    });
    expect(chars).toBe(10_000_000);
    expect(result.stdout).toHaveLength(4 * 1024 * 1024);
    expect(result.truncated).toBe(true);
  });

  test("a value that is too long to be shown whole says so, and so does a format that is left out", async () => {
    const { session } = await startGuest();
    const long = await session.runCode("'z' * (9 << 20)", PATIENT);
    expect([long.truncated, String(long.results[0]?.data).length]).toEqual([true, 8 * 1024 * 1024 + 1]);
    const wide = await session.runCode(
      "class Wide:\n  _repr_html_ = lambda self: 'z' * (9 << 20)\nWide()",
      PATIENT,
    );
    expect([wide.truncated, wide.results.map(({ type }) => type)]).toEqual([true, ["text/plain"]]);
    expect((await session.runCode("'z' * (1 << 20)")).truncated).toBeUndefined();
    const dense = await session.runCode("'\u{1F600}' * 5_000_000", PATIENT);
    expect([dense.truncated, dense.error]).toEqual([true, undefined]);
    expect(String(dense.results[0]?.data)).toMatch(/^'\u{1F600}{600000,}\u2026$/u);
  });

  test("an exception with a long text is a result all the same, with its beginning and its end", async () => {
    const { session } = await startGuest();
    const { error } = await session.runCode(
      "raise ValueError('a' + '\u{1F600}' * 26_000_000 + 'z')",
      PATIENT,
    );
    expect(error?.name).toBe("ValueError");
    expect([error?.value.length, error?.traceback.length].every((length) => Number(length) < 3 << 20)).toBe(
      true,
    );
    expect([error?.value[0], error?.value.at(-1)]).toEqual(["a", "z"]);
    expect(error?.traceback).toMatch(/^Traceback/);
  });

  test("a listener that is slow: the code waits for it", async () => {
    const { session } = await startGuest();
    const { promise: mayContinue, resolve: continueRun } = Promise.withResolvers<void>();
    const code = "for n in range(64): print('x' * 1024 * 1024)\nprinted = True";
    let isDone = false;
    const run = session.runCode(code, { ...PATIENT, onStdout: () => mayContinue }).then(() => {
      isDone = true;
    });
    await delay(1500);
    expect(isDone).toBe(false);
    continueRun();
    await run;
    expect(await valueIn(session, "printed")).toBe("True");
  });
});

describe("contexts", () => {
  test("have variables of their own and run side by side; one of the same name is the same", async () => {
    const { session, client } = await startGuest();
    const [a, b] = [session.createCodeContext({ name: "a" }), session.createCodeContext({ name: "b" })];
    await Promise.all([
      session.runCode("x = 'a'", { context: a }),
      session.runCode("x = 'b'", { context: b }),
    ]);
    const { onStdout, isRunning } = announced();
    const busy = a.run("import time\nprint('in')\ntime.sleep(60)", { onStdout });
    await isRunning;
    expect((await b.run("x")).results[0]?.data).toBe("'b'");
    await a.interrupt();
    await busy;
    const again = client.session("s1").createCodeContext({ name: "a" });
    expect((await again.run("x")).results[0]?.data).toBe("'a'");
  });

  test("begin again after restart, and a run in flight is rejected", async () => {
    const { session } = await startGuest();
    const context = session.createCodeContext();
    await context.restart();
    await context.run("x = 1");
    const { onStdout, isRunning } = announced();
    const run = context.run("import time\nprint('in')\ntime.sleep(60)", { onStdout });
    const refused = expect(run).rejects.toMatchObject({
      code: "kernel_died",
      message: expect.stringContaining("restarted"),
    });
    await isRunning;
    await context.restart();
    await refused;
    const fresh = await context.run("x");
    expect(fresh).toMatchObject({ execution_count: 1, error: { name: "NameError" } });
  });

  test("end with close, and begin again with the next run", async () => {
    const { session, named } = await startGuest();
    const context = session.createCodeContext({ name: "short" });
    await context.close();
    await context.run("x = 1");
    await context.close();
    expect(named.get("code-short")?.child.exitCode).toBe(143);
    expect((await context.run("x")).error?.name).toBe("NameError");
  });

  test("cost one request a run once they are there, for a new client too", async () => {
    const { client, session, requests } = await startGuest();
    await session.runCode("1");
    expect(requests).toEqual(["POST exec", "PUT files/batch", "POST processes", "POST exec"]);
    requests.length = 0;
    await session.runCode("1");
    await client.session("s1").runCode("1");
    expect(requests).toEqual(["POST exec", "POST exec"]);
  });

  test("are started once by runs of several programs that begin at the same time", async () => {
    const { url } = await startGuest();
    const sessions = [1, 2, 3].map(() => new Client({ url, apiKey: "viv_test" }).session("s1"));
    const runs = await Promise.all(sessions.map((session) => session.runCode("1")));
    expect(runs.map((run) => run.execution_count).sort()).toEqual([1, 2, 3]);
  });
});

describe("a kernel that dies", () => {
  test("in the middle of a run: the run says so, the next one has a fresh one", async () => {
    const { session } = await startGuest();
    await expect(session.runCode("import os\nos._exit(7)")).rejects.toMatchObject({
      code: "kernel_died",
      message: expect.stringContaining("exited with 7"),
    });
    expect((await session.runCode("1")).execution_count).toBe(1);
    await expect(session.runCode("import os\nos.kill(os.getpid(), 9)")).rejects.toMatchObject({
      code: "kernel_died",
      message: expect.stringContaining("signal 9"),
    });
  });

  test("between two runs: the next one says so, since its variables are gone", async () => {
    const { session, root } = await startGuest();
    const die = "def die():\n  await_file('go')\n  os._exit(9)\n";
    const begun = `import threading\n${AWAIT_FILE}${die}threading.Thread(target=die).start()\nos.getpid()`;
    const worker = Number(await valueIn(session, begun));
    await writeFile(join(root, "go"), "");
    await expect.poll(() => isRunning(worker)).toBe(false);
    await expect(session.runCode("os")).rejects.toMatchObject({ code: "kernel_died" });
    expect((await session.runCode("1")).execution_count).toBe(1);
  });

  test.each(["SIGTERM", "SIGKILL"] as const)("with all that belongs to it, by %s", async (signal) => {
    const { session, named } = await startGuest();
    const worker = Number(await valueIn(session, "import os\nos.getpid()"));
    named.get("code-default")?.child.kill(signal);
    await expect(session.runCode("1")).rejects.toMatchObject({ code: "kernel_died" });
    expect((await session.runCode("1")).execution_count).toBe(1);
    expect(await isRunning(worker)).toBe(false);
  });

  test("cannot be reached for lack of its socket or its programs: the socket costs the variables", async () => {
    const { session, root } = await startGuest();
    await session.runCode("kept = 1");
    await rm(join(root, ".vivarium"), { recursive: true });
    expect(await valueIn(session, "kept")).toBe("1");
    await rm(join(root, "sockets"), { recursive: true });
    await expect(session.runCode("kept")).rejects.toMatchObject({ code: "kernel_died" });
  });
});

test("a session without python3 is kernel_failed, and so is one whose kernel talks nonsense", async () => {
  const answer = (events: string) =>
    serve((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(events);
    });
  const exit = (code: number) =>
    `event: exit\ndata: {"exit_code":${code},"timed_out":false,"duration_ms":1}\n\n`;
  const without = await answer(exit(127));
  await expect(without.session.runCode("1")).rejects.toMatchObject({
    code: "kernel_failed",
    message: "there is no python3 in the session",
  });
  for (const said of ["garbage\n", "[]\n", '{"event":"stdout","text":7}\n', '{"event":"refused"}\n']) {
    const strange = await answer(`event: stdout\ndata: ${btoa(said)}\n\n${exit(0)}`);
    await expect(strange.session.runCode("1")).rejects.toMatchObject({ code: "kernel_failed" });
  }
});
