/** The real kernel with this host's python3; the guest is a directory (test-support/code-guest.ts). */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { startGuest } from "../../test-support/code-guest.ts";
import { serve } from "../../test-support/server.ts";
import { Client } from "../client.ts";
import type { Session } from "../session.ts";
import type { CodeContext } from "./code-context.ts";
import type { CodeResult } from "./code-result.ts";

const hasModule = (name: string) => {
  try {
    execFileSync("python3", ["-c", `import ${name}`], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
};
const valueIn = async (session: Session, code: string) => (await session.runCode(code)).results[0]?.data;

const lastValue = async (context: CodeContext, code: string) => (await context.run(code)).results[0]?.data;

/** A process that ended and that nobody has asked about yet does not count. */
const isRunning = async (pid: number) => {
  const status = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => ") Z");
  return !status.includes(") Z");
};

/** Code that waits for a file in the guest's directory, which the test makes. */
const AWAIT_FILE =
  "import os, time\ndef await_file(name):\n  while not os.path.exists(name): time.sleep(.01)\n";

/** Until the code has said that it runs. */
function announced(): { onStdout: () => void; isRunning: Promise<void> } {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { onStdout: resolve, isRunning: promise };
}

describe("a run", () => {
  test("gives the last expression's value, and keeps variables for the next", async () => {
    const { session } = await startGuest();
    const first = await session.runCode("import math\nx = 6\n");
    expect(first).toMatchObject({
      results: [],
      stdout: "",
      stderr: "",
      execution_count: 1,
      timed_out: false,
    });
    expect(first).not.toHaveProperty("error");
    const second = await session.runCode("x * 7");
    expect(second.results).toEqual([{ type: "text/plain", data: "42", value: 0, main: true }]);
    expect(second.execution_count).toBe(2);
  });

  test("shows no value after a semicolon, nor None", async () => {
    const { session } = await startGuest();
    expect((await session.runCode("7;")).results).toEqual([]);
    expect((await session.runCode("None")).results).toEqual([]);
  });

  test("streams what is printed while it runs, each stream by itself", async () => {
    const { session, root } = await startGuest();
    const seen: string[] = [];
    // The code goes on after each word only when it was heard.
    const hear = async (text: string) => {
      seen.push(text);
      await writeFile(join(root, `heard-${seen.length}`), "");
    };
    const { stdout, stderr } = await session.runCode(
      `import sys\n${AWAIT_FILE}print('one')\nawait_file('heard-1')\nprint('two')\nawait_file('heard-2')\nprint('wrong', file=sys.stderr)`,
      { onStdout: hear, onStderr: (text) => hear(`! ${text}`) },
    );
    expect(seen).toEqual(["one\n", "two\n", "! wrong\n"]);
    expect([stdout, stderr]).toEqual(["one\ntwo\n", "wrong\n"]);
  });

  test("ends with the exception that the code did not catch, without our frames", async () => {
    const { session } = await startGuest();
    const { error } = await session.runCode("def half(n):\n  return n / 0\nhalf(1)");
    expect(error).toMatchObject({ name: "ZeroDivisionError", value: "division by zero" });
    // Versions of Python differ in what they underline.
    expect(error?.traceback.split("\n").filter((line) => !/^[ ~^]+$/.test(line))).toEqual([
      "Traceback (most recent call last):",
      '  File "<cell 1>", line 3, in <module>',
      "    half(1)",
      '  File "<cell 1>", line 2, in half',
      "    return n / 0",
      "ZeroDivisionError: division by zero",
      "",
    ]);
    expect((await session.runCode("def (")).error).toMatchObject({
      name: "SyntaxError",
      traceback: expect.stringMatching(/^ {2}File "<cell 2>", line 1\n {4}def \(\n/),
    });
  });

  test("takes any text as code, and code of some length", async () => {
    const { session } = await startGuest();
    expect(await valueIn(session, "'é 😀 \"\\\\'")).toBe("'é 😀 \"\\\\'");
    const long = `text = """${"ü\n".repeat(40_000)}"""\nlen(text)`;
    expect(await valueIn(session, long)).toBe("80000");
    await expect(session.runCode("#".repeat(600_000))).rejects.toMatchObject({ code: "payload_too_large" });
    await expect(session.runCode("1", { timeoutMs: 0 })).rejects.toMatchObject({ code: "validation" });
    await expect(session.runCode("1", { timeoutMs: 3_600_000 })).rejects.toMatchObject({
      code: "validation",
    });
  });

  test("awaits at the top level", async () => {
    const { session } = await startGuest();
    expect(await valueIn(session, "import asyncio\nawait asyncio.sleep(0, 'slept')")).toBe("'slept'");
  });
});

describe("rich results", () => {
  test("lists and dicts come as JSON as well, what JSON cannot say does not", async () => {
    const { session } = await startGuest();
    const { results } = await session.runCode("{'a': [1, None]}");
    expect(results).toEqual([
      { type: "text/plain", data: "{'a': [1, None]}", value: 0, main: true },
      { type: "application/json", data: { a: [1, null] }, value: 0, main: true },
    ]);
    expect((await session.runCode("[float('nan')]")).results.map(({ type }) => type)).toEqual(["text/plain"]);
  });

  test("display shows values on the way, in order with what is printed", async () => {
    const { session } = await startGuest();
    const seen: unknown[] = [];
    const { results } = await session.runCode("print('a')\ndisplay(1, 'b')\nprint('c')\n4", {
      onStdout: (text) => void seen.push(text),
      onResult: ({ data }) => void seen.push(data),
    });
    expect(seen).toEqual(["a\n", "1", "'b'", "c\n", "4"]);
    expect(results.map(({ value, main }) => [value, main])).toEqual([
      [0, false],
      [1, false],
      [2, true],
    ]);
  });

  test("an object shows itself as it does in notebooks; a format that fails is left out", async () => {
    const { session } = await startGuest();
    const { results, error } = await session.runCode(
      `class Shown:
  def __repr__(self): return "plain"
  def _repr_html_(self): return "<b>rich</b>"
  def _repr_png_(self): return b"\\x89PNG"
  def _repr_json_(self): raise ValueError("none")
Shown()`,
    );
    expect(error).toBeUndefined();
    expect(results.map(({ type, data }) => [type, data])).toEqual([
      ["text/plain", "plain"],
      ["text/html", "<b>rich</b>"],
      ["image/png", "iVBORw=="],
    ]);
  });

  test.skipIf(!hasModule("pandas"))("a DataFrame is text, HTML and JSON", async () => {
    const { session } = await startGuest();
    const { results } = await session.runCode(
      "import pandas\npandas.DataFrame({'n': [1, 2], 's': ['a', None]})",
    );
    const formats = Object.fromEntries(results.map(({ type, data }) => [type, data]));
    expect(Object.keys(formats)).toEqual(["text/plain", "text/html", "application/json"]);
    expect(formats["text/html"]).toContain("<table");
    expect(formats["application/json"]).toEqual({
      columns: ["n", "s"],
      index: [0, 1],
      data: [
        [1, "a"],
        [2, null],
      ],
    });
  });

  test.skipIf(!hasModule("matplotlib"))("figures are PNGs, shown once each and closed", async () => {
    const { session } = await startGuest();
    const pictures = (results: CodeResult[]) =>
      results.filter((result) => result.type === "image/png").map(({ data }) => String(data).slice(0, 8));
    const PNG = "iVBORw0K";
    const first = await session.runCode(
      "import matplotlib.pyplot as plt\nplt.plot([1]);\nplt.show()\nplt.figure()\nplt.plot([2]);",
    );
    expect(pictures(first.results)).toEqual([PNG, PNG]);
    expect(first.stderr).toBe("");
    expect(await valueIn(session, "plt.get_fignums()")).toBe("[]");
    expect(pictures((await session.runCode("figure, _ = plt.subplots()\nfigure")).results)).toEqual([PNG]);
  });
});

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

  test("code that forks: one of two goes on", async () => {
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
    await expect.poll(() => existsSync(join(root, "printed")), { timeout: 10_000 }).toBe(true);
    expect((await session.runCode("1")).stdout).toBe("late\n");
  });

  test("megabytes of output: all of it is streamed, the first 4 MiB are kept", async () => {
    const { session } = await startGuest();
    let chars = 0;
    const result = await session.runCode("for _ in range(200): print('x' * 49_999)", {
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
    const long = await session.runCode("'z' * (9 << 20)");
    expect([long.truncated, String(long.results[0]?.data).length]).toEqual([true, 8 * 1024 * 1024 + 1]);
    const wide = await session.runCode("class Wide:\n  _repr_html_ = lambda self: 'z' * (9 << 20)\nWide()");
    expect([wide.truncated, wide.results.map(({ type }) => type)]).toEqual([true, ["text/plain"]]);
    expect((await session.runCode("'z' * (1 << 20)")).truncated).toBeUndefined();
    const dense = await session.runCode("'\u{1F600}' * 5_000_000");
    expect([dense.truncated, dense.error]).toEqual([true, undefined]);
    expect(String(dense.results[0]?.data)).toMatch(/^'\u{1F600}{600000,}\u2026$/u);
  });

  test("an exception with a long text is a result all the same, with its beginning and its end", async () => {
    const { session } = await startGuest();
    const { error } = await session.runCode("raise ValueError('a' + '\u{1F600}' * 26_000_000 + 'z')");
    expect(error?.name).toBe("ValueError");
    expect([error?.value.length, error?.traceback.length].every((length) => Number(length) < 3 << 20)).toBe(
      true,
    );
    expect([error?.value[0], error?.value.at(-1)]).toEqual(["a", "z"]);
    expect(error?.traceback).toMatch(/^Traceback/);
  });

  test("a listener that is slow: the code waits for it", async () => {
    const { session } = await startGuest();
    const { promise: mayGoOn, resolve: goOn } = Promise.withResolvers<void>();
    const code = "for n in range(64): print('x' * 1024 * 1024)\nprinted = True";
    let isDone = false;
    const run = session.runCode(code, { onStdout: () => mayGoOn }).then(() => {
      isDone = true;
    });
    await delay(1500);
    expect(isDone).toBe(false);
    goOn();
    await run;
    expect(await valueIn(session, "printed")).toBe("True");
  });
});

describe("time and interrupts", () => {
  test("a timeout interrupts the code, and the kernel keeps what there was", async () => {
    const { session } = await startGuest();
    await session.runCode("kept = 1");
    const late = await session.runCode("print('in')\nwhile True: pass", { timeoutMs: 2_000 });
    expect(late).toMatchObject({ timed_out: true, stdout: "in\n", error: { name: "KeyboardInterrupt" } });
    expect(await valueIn(session, "kept")).toBe("1");
  });

  test("a command that the code waits for is interrupted as well", async () => {
    const { session } = await startGuest();
    const late = await session.runCode("import os\nos.system('sleep 3170')", { timeoutMs: 300 });
    expect(late.timed_out).toBe(true);
  });

  test("code that takes no notice of interrupts is killed after the grace", async () => {
    const { session } = await startGuest();
    // Not by `except`: between two rounds of a loop an interrupt is outside of its `try`.
    const deaf =
      "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: time.sleep(60)";
    await expect(session.runCode(deaf, { timeoutMs: 1_000 })).rejects.toMatchObject({
      code: "kernel_died",
      message: expect.stringContaining("did not stop"),
    });
    expect(await valueIn(session, "40 + 2")).toBe("42");
  });

  test("code that takes no notice of its caller's leaving is killed, and the next run is told", async () => {
    const { session } = await startGuest();
    const abort = new AbortController();
    const { onStdout, isRunning } = announced();
    const deaf =
      "kept = 1\nimport signal, time\nsignal.signal(signal.SIGINT, lambda *_: None)\nprint('in')\nwhile True: time.sleep(60)";
    const run = session.runCode(deaf, { signal: abort.signal, onStdout });
    await isRunning;
    abort.abort();
    await expect(run).rejects.toMatchObject({ name: "AbortError" });
    await expect(session.runCode("kept")).rejects.toMatchObject({ code: "kernel_died" });
    expect(await valueIn(session, "40 + 2")).toBe("42");
  });

  test("a timeout interrupts the drawing of figures as well, and they are not drawn again", async () => {
    const { session } = await startGuest();
    const slow = `
import sys, time, types
open_figures = [1, 2]
class Figure:
    def savefig(self, *given, **options): time.sleep(60)
pyplot = types.ModuleType("matplotlib.pyplot")
pyplot.get_fignums = lambda: list(open_figures)
pyplot.figure = lambda number: Figure()
pyplot.close = lambda which: open_figures.clear()
sys.modules["matplotlib.pyplot"] = pyplot
kept = 1`;
    const late = await session.runCode(slow, { timeoutMs: 1_000 });
    expect(late).toMatchObject({ timed_out: true, error: { name: "KeyboardInterrupt" } });
    expect(await valueIn(session, "kept")).toBe("1");
  });

  test("the time of a first run does not count the start of its process", async () => {
    const { session } = await startGuest();
    for (let n = 1; n <= 5; n++) {
      const context = session.createCodeContext({ name: `n${n}` });
      expect(await context.run("while True: pass", { timeoutMs: 1 })).toMatchObject({
        timed_out: true,
        error: { name: "KeyboardInterrupt" },
      });
    }
  });

  test("interrupt ends the run with KeyboardInterrupt; without one it does nothing", async () => {
    const { session } = await startGuest();
    const context = session.createCodeContext();
    await context.interrupt();
    const { onStdout, isRunning } = announced();
    const run = context.run("import time\nprint('in')\ntime.sleep(60)", { onStdout });
    await isRunning;
    await context.interrupt();
    expect(await run).toMatchObject({ timed_out: false, error: { name: "KeyboardInterrupt" } });
    await context.interrupt();
    expect((await context.run("time.time() > 0")).results[0]?.data).toBe("True");
  });

  test("aborting rejects at once and interrupts the code", async () => {
    const { session } = await startGuest();
    const abort = new AbortController();
    const { onStdout, isRunning } = announced();
    const code =
      "import time\nstopped = False\ntry:\n  print('in')\n  time.sleep(60)\nfinally:\n  stopped = True";
    const run = session.runCode(code, { signal: abort.signal, onStdout });
    await isRunning;
    abort.abort();
    await expect(run).rejects.toMatchObject({ name: "AbortError" });
    expect(await valueIn(session, "stopped")).toBe("True");
  });

  describe("runs that wait for their turn", () => {
    /** A context with a run that is under way until the file is there. */
    async function busy() {
      const guest = await startGuest();
      const context = guest.session.createCodeContext({ name: "a" });
      const { onStdout, isRunning } = announced();
      const first = context.run(`${AWAIT_FILE}order = ['first']\nprint('in')\nawait_file('go')`, {
        onStdout,
      });
      await isRunning;
      return { ...guest, context, first, goOn: () => writeFile(join(guest.root, "go"), "") };
    }
    const append = (word: string) => `order.append('${word}')`;

    test("are not asked of the service before it: a command ends an hour after it was asked for", async () => {
      const { client, session, context, first, requests, goOn } = await busy();
      requests.length = 0;
      const again = client.session("s1").createCodeContext({ name: "a" });
      const queued = [context.run(append("second")), again.run(append("third"))];
      // Asked after them, and answered: they would be there by now.
      await session.createCodeContext({ name: "b" }).run("1");
      expect(requests).toEqual(["POST exec", "PUT files/batch", "POST processes", "POST exec"]);
      await goOn();
      await Promise.all([first, ...queued]);
      expect(await lastValue(context, "order")).toBe("['first', 'second', 'third']");
    });

    test("leave the queue at once when they are aborted, and let nobody pass who was before them", async () => {
      const { context, first, goOn } = await busy();
      const abort = new AbortController();
      const left = context.run(append("left"), { signal: abort.signal });
      const last = context.run(append("last"));
      abort.abort();
      await expect(left).rejects.toMatchObject({ name: "AbortError" });
      let isFirstOver = false;
      void first.then(() => {
        isFirstOver = true;
      });
      const wasFirstOver = last.then(() => isFirstOver);
      await goOn();
      expect(await wasFirstOver).toBe(true);
      expect(await lastValue(context, "order")).toBe("['first', 'last']");
      await expect(context.run("1", { signal: abort.signal })).rejects.toMatchObject({ name: "AbortError" });
    });

    test("get the next process when the one before them has lost its own", async () => {
      const { context, first, named } = await busy();
      const next = context.run("'order' in globals()");
      named.get("code-a")?.child.kill("SIGKILL");
      await expect(first).rejects.toMatchObject({ code: "kernel_died" });
      expect((await next).results[0]?.data).toBe("False");
    });

    test("are rejected by close, and what is asked for after it gets another process", async () => {
      const { context, first, named } = await busy();
      const refused = [first, context.run("1"), context.run("2")].map((run) =>
        expect(run).rejects.toMatchObject({ code: "kernel_died" }),
      );
      const closing = context.close();
      const later = context.run("'order' in globals()");
      await Promise.all([closing, ...refused]);
      expect((await later).results[0]?.data).toBe("False");
      expect(named.size).toBe(1);
    });

    test("are refused at once when they are too long", async () => {
      const { context, first, goOn } = await busy();
      await expect(context.run("#".repeat(600_000))).rejects.toMatchObject({ code: "payload_too_large" });
      await goOn();
      await first;
    });
  });

  test("runs of one context come one after the other, also those of several programs", async () => {
    const { session, url } = await startGuest();
    await session.runCode("order = []");
    const add = (n: number) =>
      new Client({ url, apiKey: "viv_test" })
        .session("s1")
        .runCode(`import time\norder.append(${n})\ntime.sleep(.2)\norder.append(${n})`);
    await Promise.all([add(1), add(2), add(3)]);
    expect(await valueIn(session, "sorted(order[::2]), order[::2] == order[1::2]")).toBe("([1, 2, 3], True)");
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

  test("begin anew after restart, and a run under way is told", async () => {
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

  test("end with close, and begin anew with the next run", async () => {
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
    await expect.poll(() => isRunning(worker), { timeout: 10_000 }).toBe(false);
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

describe("where another program's code has the kernel", () => {
  const exit = (timed_out: boolean) =>
    `event: exit\ndata: {"exit_code":${timed_out ? -1 : 0},"timed_out":${timed_out},"duration_ms":1}\n\n`;
  const said = (...events: object[]) =>
    `event: stdout\ndata: ${btoa(events.map((event) => `${JSON.stringify(event)}\n`).join(""))}\n\n`;
  const answering = (answers: string[]) =>
    serve((_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.end(answers.shift());
    });
  const END = { event: "end", timed_out: false };

  test("for an hour, a run that has not begun is asked for anew", async () => {
    const begun = said({ event: "begin", count: 7 }, END) + exit(false);
    const { session } = await answering([exit(true), exit(true), begun]);
    expect(await session.runCode("1")).toMatchObject({ execution_count: 7, timed_out: false });
  });

  test("for most of an hour, a run that is cut off has timed out, and is not run twice", async () => {
    const { session } = await answering([said({ event: "begin", count: 7 }) + exit(true)]);
    expect(await session.runCode("1")).toMatchObject({
      timed_out: true,
      error: { name: "KeyboardInterrupt" },
    });
  });

  test("a run that a pause has broken off takes those that wait with it, so that they wake nothing", async () => {
    const brokenOff = `${said({ event: "begin", count: 1 })}event: error\ndata: "the session was paused"\n\n`;
    const answers = [brokenOff, said({ event: "begin", count: 2 }, END) + exit(false)];
    const { session } = await answering(answers);
    const runs = [session.runCode("1"), session.runCode("2"), session.runCode("3")];
    for (const run of runs) await expect(run).rejects.toMatchObject({ code: "exec_failed" });
    expect(answers).toHaveLength(1);
    expect((await session.runCode("4")).execution_count).toBe(2);
  });
});
