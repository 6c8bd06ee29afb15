/** Time, interrupts and the queue of runs: the real kernel with this host's python3; the guest is a directory (test-support/code-guest.ts). */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { describe, expect, test } from "vitest";
import { startGuest } from "../../test-support/code-guest.ts";
import { AWAIT_FILE, announced, lastValue, valueIn } from "../../test-support/code-values.ts";
import { serve } from "../../test-support/server.ts";
import { Client } from "../client.ts";

describe("time and interrupts", () => {
  test("a timeout interrupts the code, and the kernel keeps what there was", async () => {
    const { session } = await startGuest();
    await session.runCode("kept = 1");
    const late = await session.runCode("print('in')\nwhile True: pass", { timeoutMs: 2_000 * SLOWNESS });
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
    // Not by `except`: between two rounds of a loop an interrupt is raised outside of its `try`.
    const deaf =
      "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: time.sleep(60)";
    await expect(session.runCode(deaf, { timeoutMs: 1_000 * SLOWNESS })).rejects.toMatchObject({
      code: "kernel_died",
      message: expect.stringContaining("did not stop"),
    });
    expect(await valueIn(session, "40 + 2")).toBe("42");
  });

  test("code that takes no notice of its caller's leaving is killed, and the next run reports it", async () => {
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
    const late = await session.runCode(slow, { timeoutMs: 1_000 * SLOWNESS });
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
    /** A context with a run in flight until the file exists. */
    async function busy() {
      const guest = await startGuest();
      const context = guest.session.createCodeContext({ name: "a" });
      const { onStdout, isRunning } = announced();
      const first = context.run(`${AWAIT_FILE}order = ['first']\nprint('in')\nawait_file('go')`, {
        onStdout,
      });
      await isRunning;
      return { ...guest, context, first, letContinue: () => writeFile(join(guest.root, "go"), "") };
    }
    const append = (word: string) => `order.append('${word}')`;

    test("are not asked of the service before it: a command ends an hour after it was asked for", async () => {
      const { client, session, context, first, requests, letContinue } = await busy();
      requests.length = 0;
      const again = client.session("s1").createCodeContext({ name: "a" });
      const queued = [context.run(append("second")), again.run(append("third"))];
      // Asked after them, and answered: they would have arrived by now.
      await session.createCodeContext({ name: "b" }).run("1");
      expect(requests).toEqual(["POST exec", "PUT files/batch", "POST processes", "POST exec"]);
      await letContinue();
      await Promise.all([first, ...queued]);
      expect(await lastValue(context, "order")).toBe("['first', 'second', 'third']");
    });

    test("leave the queue at once when they are aborted, without letting later runs overtake earlier ones", async () => {
      const { context, first, letContinue } = await busy();
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
      await letContinue();
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
      const { context, first, letContinue } = await busy();
      await expect(context.run("#".repeat(600_000))).rejects.toMatchObject({ code: "payload_too_large" });
      await letContinue();
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

  test("for an hour, a run that has not begun is asked for again", async () => {
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
