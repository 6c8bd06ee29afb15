/** Commands in a machine, through a node. */
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { eventually } from "../../support/eventually.ts";
import type { NodeCaller } from "../../support/node-caller.ts";
import { type OneMachine, sh } from "../contracted-node.ts";

export function execs(one: OneMachine): void {
  const { machineId } = one;

  describe("an exec", () => {
    test("returns both streams, the exit code and the time the command took", async () => {
      const done = await one.node.exec(machineId, { argv: sh("printf out; printf err >&2; exit 3") });
      expect(done.stdout.toString()).toBe("out");
      expect(done.stderr.toString()).toBe("err");
      expect(done.exit).toMatchObject({ exit_code: 3, timed_out: false, stdout_truncated: false });
      expect(done.exit?.duration_us).toBeGreaterThan(0);
    });

    test("answers as soon as its command runs, even if that prints nothing for long", async () => {
      const gone = new AbortController();
      let started = false;
      const onStarted = () => {
        started = true;
        gone.abort();
      };
      const call = { argv: ["sleep", "3600"], timeout_ms: 3_600_000 };
      await one.node.exec(machineId, call, { signal: gone.signal, onStarted }).catch(() => {});
      expect(started).toBe(true);
    });

    test("reports a signal as 128 + its number", async () => {
      const done = await one.node.exec(machineId, { argv: sh("kill -TERM $$") });
      expect(done.exit?.exit_code).toBe(143);
    });

    test("has an empty standard input", async () => {
      const done = await one.node.exec(machineId, { argv: ["cat"], timeout_ms: 10_000 });
      expect(done.exit).toMatchObject({ exit_code: 0, timed_out: false });
      expect(done.stdout.length).toBe(0);
    });

    test("is killed with its children at its time limit, and keeps the output so far", async () => {
      const startedAt = Date.now();
      const argv = sh("echo before; sleep 60 & sleep 60; echo after");
      const done = await one.node.exec(machineId, { argv, timeout_ms: 4_000 });
      expect(done.exit).toMatchObject({ exit_code: -1, timed_out: true });
      expect(done.stdout.toString()).toBe("before\n");
      expect(Date.now() - startedAt).toBeLessThan(30_000);
    });

    test("sees the variables it is given, beside a base environment", async () => {
      const env = { GREETING: "grüß dich\n2nd line" };
      const done = await one.node.exec(machineId, { argv: sh('printf %s "$GREETING|$HOME|$PATH"'), env });
      const [greeting, home, path] = done.stdout.toString().split("|");
      expect(greeting).toBe(env.GREETING);
      expect(home).not.toBe("");
      expect(path).toContain("/usr/bin");
    });

    test("starts in /workspace, or where cwd says, relative to it", async () => {
      const made = await one.node.exec(machineId, { argv: sh("mkdir -p deep/er && pwd") });
      expect(made.stdout.toString()).toMatch(/workspace\n$/);
      const relative = await one.node.exec(machineId, { argv: ["pwd"], cwd: "deep/er" });
      expect(relative.stdout.toString()).toMatch(/workspace\/deep\/er\n$/);
      const absolute = await one.node.exec(machineId, { argv: ["pwd"], cwd: "/" });
      expect(absolute.stdout.toString()).toBe("/\n");
    });

    test("refuses a cwd that is missing or a file", async () => {
      const missing = await one.node.exec(machineId, { argv: ["pwd"], cwd: "/no/such/place" });
      expect(missing).toMatchObject({ status: 400, refusal: { code: "cwd_not_found" } });
      const file = await one.node.exec(machineId, { argv: ["pwd"], cwd: "/etc/passwd" });
      expect(file).toMatchObject({ status: 400, refusal: { code: "cwd_not_a_directory" } });
    });

    test("answers 127 for a command that is not there and 126 for one that cannot run", async () => {
      const missing = await one.node.exec(machineId, { argv: ["no-such-command"] });
      expect(missing.exit?.exit_code).toBe(127);
      expect(missing.stderr.toString()).toMatch(/^.+\n$/);
      const unfit = await one.node.exec(machineId, { argv: ["/etc/passwd"] });
      expect(unfit.exit?.exit_code).toBe(126);
    });

    test("refuses a call that does not fit the contract", async () => {
      const empty = await one.node.exec(machineId, { argv: [] });
      expect(empty).toMatchObject({ status: 400, refusal: { code: "invalid" } });
      const endless = await one.node.exec(machineId, { argv: ["true"], timeout_ms: 10 ** 9 });
      expect(endless).toMatchObject({ status: 400, refusal: { code: "invalid" } });
    });

    test("drops output over the limit while the command runs to its end", async () => {
      const argv = sh("head -c 300000 /dev/zero; echo done >&2");
      const done = await one.node.exec(machineId, { argv, output_limit_bytes: 1000 });
      expect(done.stdout.length).toBe(1000);
      expect(done.stderr.toString()).toBe("done\n");
      expect(done.exit).toMatchObject({ exit_code: 0, stdout_truncated: true, stderr_truncated: false });
    });

    test("delivers large output whole", async () => {
      const line = "0123456789abcdef".repeat(64);
      const lines = 16 * 1024;
      const hash = createHash("sha256");
      let bytes = 0;
      const done = await one.node.exec(
        machineId,
        { argv: sh(`yes ${line} | head -n ${lines}`), timeout_ms: 120_000 },
        {
          onStdout: (chunk) => {
            hash.update(chunk);
            bytes += chunk.length;
          },
        },
      );
      const expected = createHash("sha256").update(`${line}\n`.repeat(lines)).digest("hex");
      expect(bytes).toBe((line.length + 1) * lines);
      expect(hash.digest("hex")).toBe(expected);
      expect(done.exit?.exit_code).toBe(0);
    });

    test("dies with its connection", async () => {
      const caller = new AbortController();
      const seen = Promise.withResolvers<void>();
      const tag = `31${Date.now() % 1_000_000}`;
      const running = one.node
        .exec(
          machineId,
          { argv: sh(`echo up; sleep ${tag} & sleep ${tag}`) },
          { signal: caller.signal, onStdout: () => seen.resolve() },
        )
        .catch(() => undefined);
      await seen.promise;
      await eventually(async () => expect(await countProcesses(one.node, machineId, `sleep ${tag}`)).toBe(2));
      caller.abort();
      await running;
      await eventually(async () => expect(await countProcesses(one.node, machineId, `sleep ${tag}`)).toBe(0));
    });

    test("ends 500 ms after its main process although a child keeps the pipe open", async () => {
      const startedAt = Date.now();
      const done = await one.node.exec(machineId, { argv: sh("sleep 90 & echo left") });
      expect(done.stdout.toString()).toBe("left\n");
      expect(done.exit?.exit_code).toBe(0);
      expect(Date.now() - startedAt).toBeLessThan(60_000);
    });

    test("runs beside others", async () => {
      const execs = Array.from({ length: 8 }, (_, i) =>
        one.node.exec(machineId, { argv: sh(`sleep 0.5; echo ${i}`) }),
      );
      const outputs = (await Promise.all(execs)).map((done) => done.stdout.toString());
      expect(outputs).toEqual(Array.from({ length: 8 }, (_, i) => `${i}\n`));
    });
  });
}

/** Processes whose command line is exactly `commandLine`, counted from inside the machine. */
async function countProcesses(node: NodeCaller, machineId: string, commandLine: string): Promise<number> {
  const done = await node.exec(machineId, { argv: ["pgrep", "-xfc", commandLine] });
  return Number(done.stdout.toString().trim());
}
