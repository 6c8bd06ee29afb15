/** Results of runs: the real kernel with this host's python3; the guest is a directory (test-support/code-guest.ts). */
import { execFileSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { startGuest } from "../../test-support/code-guest.ts";
import { AWAIT_FILE, valueIn } from "../../test-support/code-values.ts";
import type { CodeResult } from "./code-result.ts";

const hasModule = (name: string) => {
  try {
    execFileSync("python3", ["-c", `import ${name}`], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
};

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
    // The code continues after each word only once this side has received the word.
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
    // Versions of Python underline differently.
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
