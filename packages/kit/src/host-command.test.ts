import { expect, test } from "vitest";
import { runHostCommand } from "./host-command.ts";

test("reads input and keeps both outputs apart", async () => {
  const script = "cat; echo wrong >&2; exit 3";
  expect(await runHostCommand("sh", ["-c", script], { input: "given\n" })).toEqual({
    code: 3,
    stdout: "given\n",
    stderr: "wrong\n",
  });
});

test("runs with the environment and the directory that it is given", async () => {
  const options = { env: { WORD: "here", PATH: "/usr/bin:/bin" }, cwd: "/" };
  expect(await runHostCommand("sh", ["-c", 'echo "$WORD $PWD"'], options)).toMatchObject({
    code: 0,
    stdout: "here /\n",
  });
});

test("a missing program is 127, one that takes too long is killed and 137", async () => {
  expect((await runHostCommand("no-such-program", [])).code).toBe(127);
  expect((await runHostCommand("sleep", ["60"], { timeoutMs: 50 })).code).toBe(137);
});

test("a program that reads no input gives no error", async () => {
  const input = "x".repeat(1024 * 1024);
  expect((await runHostCommand("true", [], { input })).code).toBe(0);
});
