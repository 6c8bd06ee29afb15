import { release } from "node:os";
import { describe, expect, test } from "vitest";
import { client } from "../support/http.ts";

const PROGRAMS = {
  python: "import platform, sys; print(platform.release()); print('err', file=sys.stderr); print(6 * 7)",
  node: "console.log(require('os').release()); console.error('err'); console.log(6 * 7)",
  bun: "import os from 'os'; console.log(os.release()); console.error('err'); console.log(6 * 7 as number)",
} as const;

describe("a stateless run", () => {
  test.each(Object.entries(PROGRAMS))(
    "of %s gives its output from a machine of its own",
    async (language, code) => {
      const run = await client.run({
        language: language as keyof typeof PROGRAMS,
        code,
        timeout_ms: 120_000,
      });
      expect(run).toMatchObject({ stderr: "err\n", exit_code: 0, phase: "done", timed_out: false });
      const [kernel, answer] = run.stdout.trim().split("\n");
      expect(kernel).toMatch(/^\d+\.\d+/);
      expect(kernel).not.toBe(release());
      expect(answer).toBe("42");
      await expect(client.sessions.get(run.session_id)).rejects.toMatchObject({ status: 404 });
    },
  );

  test("returns the exit code of a program that fails", async () => {
    const run = await client.run({ language: "python", code: "import sys; print('x'); sys.exit(3)" });
    expect(run).toMatchObject({ stdout: "x\n", exit_code: 3, phase: "done" });
  });

  test("is cut off by its time limit, with the output so far", async () => {
    const code = "import time; print('begun', flush=True); time.sleep(600)";
    const run = await client.run({ language: "python", code, timeout_ms: 8_000 });
    expect(run).toMatchObject({ stdout: "begun\n", exit_code: -1, timed_out: true, phase: "run" });
  });

  test("ends in its installation when a package does not exist", async () => {
    const run = await client.run({
      language: "python",
      code: "print('never')",
      dependencies: ["vivarium-no-such-package-of-anybody"],
      timeout_ms: 90_000,
    });
    expect(run.phase).toBe("install");
    expect(run.exit_code).not.toBe(0);
    expect(run.stdout).not.toContain("never");
    expect(run.duration_ms).toBe(0);
    expect(run.install_ms).toBeGreaterThan(0);
  });
});
