/**
 * What every implementation of contract/node does, written once: the fake node answers to it in the unit tests, the
 * real daemon in the end-to-end tests. Scenarios share one machine where they do not end it, because starting one
 * is the expensive part.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { MachineList, MachineStatus, NodeInfo } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import type { NodeCaller } from "../support/node-caller.ts";

export interface ContractedNode extends NodeCaller {
  close?: () => Promise<void>;
}

export const startSpec = (over: object = {}) => ({
  template: "base",
  size: "small",
  hostname: "contract",
  no_sudo: false,
  ...over,
});

const NETWORK = { generation: 7, egress: { mode: "allow", allow: [] }, exposed: [] };

const sh = (script: string) => ["sh", "-c", script];

export function nodeContract(makeNode: () => Promise<ContractedNode>): void {
  let node: ContractedNode;
  const machineId = `${randomId()}-1`;
  const path = `/v1/machines/${machineId}`;

  beforeAll(async () => {
    node = await makeNode();
    const started = await node.call("PUT", path, startSpec({ network: NETWORK }));
    expect(started).toMatchObject({ status: 200 });
  });
  afterAll(async () => {
    await node?.call("DELETE", path);
    await node?.close?.();
  });

  describe("a node", () => {
    test("describes itself", async () => {
      const { status, body } = await node.call("GET", "/v1/info");
      expect(status).toBe(200);
      const info = NodeInfo.parse(body);
      expect(info.baselines).toContainEqual(expect.objectContaining({ template: "base", size: "small" }));
      expect(info.disk.free_bytes).toBeLessThanOrEqual(info.disk.total_bytes);
    });

    test("keeps a connection for as long as its caller does: none closes under a request", async () => {
      const asked = node.beginGuest(machineId, "GET", "/processes");
      asked.setHeader("connection", "keep-alive");
      asked.end();
      const [{ headers, socket }] = (await once(asked, "response")) as [IncomingMessage];
      socket.destroy();
      expect(headers.connection).toBe("keep-alive");
      // Says after how much idleness the server closes, where it does.
      expect(headers).not.toHaveProperty("keep-alive");
    });

    test("lists its machines", async () => {
      const { body } = await node.call("GET", "/v1/machines");
      const ids = MachineList.parse(body).machines.map((machine) => machine.machine_id);
      expect(ids).toContain(machineId);
    });

    test("says with which generation of its network a machine was started", async () => {
      const { body } = await node.call("GET", "/v1/machines");
      const listed = MachineList.parse(body).machines.find(({ machine_id: id }) => id === machineId);
      expect(listed).toMatchObject({ network_generation: 7 });
    });

    test("refuses what it does not know: machine, template, body", async () => {
      const nobody = `/v1/machines/${randomId()}-1`;
      expect(await node.call("GET", nobody)).toMatchObject(refusal(404, "machine_not_found"));
      const exec = { argv: ["true"], env: {}, timeout_ms: 1000 };
      expect(await node.call("POST", `${nobody}/exec`, exec)).toMatchObject(
        refusal(404, "machine_not_found"),
      );
      const unknown = startSpec({ template: "no-such-template" });
      expect(await node.call("PUT", nobody, unknown)).toMatchObject(refusal(404, "template_unavailable"));
      expect(await node.call("PUT", nobody, { size: 7 })).toMatchObject(refusal(400, "invalid"));
      const malformed = await node.call("PUT", "/v1/machines/UPPER", startSpec());
      expect(malformed).toMatchObject(refusal(404, "machine_not_found"));
      expect(await node.call("GET", nobody)).toMatchObject(refusal(404, "machine_not_found"));
    });
  });

  describe("a machine", () => {
    test("started again with the same body is the same machine, with another body a conflict", async () => {
      const again = await node.call("PUT", path, startSpec({ network: NETWORK }));
      expect(MachineStatus.parse(again.body)).toMatchObject({ machine_id: machineId, state: "running" });
      const other = await node.call("PUT", path, startSpec({ network: NETWORK, no_sudo: true }));
      expect(other).toMatchObject(refusal(409, "machine_conflict"));
    });

    test("started twice at once is one machine, and gone once it was deleted twice", async () => {
      const twin = `/v1/machines/${randomId()}-2`;
      const answers = await Promise.all([
        node.call("PUT", twin, startSpec({ hostname: "twin" })),
        node.call("PUT", twin, startSpec({ hostname: "twin" })),
      ]);
      expect(answers.map((answer) => answer.status)).toEqual([200, 200]);
      expect(answers[0].body).toEqual(answers[1].body);
      expect(await node.call("DELETE", twin)).toMatchObject({ status: 204 });
      expect(await node.call("GET", twin)).toMatchObject(refusal(404, "machine_not_found"));
      expect(await node.call("DELETE", twin)).toMatchObject({ status: 204 });
    });
  });

  describe("an exec", () => {
    test("returns both streams, the exit code and the time the command took", async () => {
      const done = await node.exec(machineId, { argv: sh("printf out; printf err >&2; exit 3") });
      expect(done.stdout.toString()).toBe("out");
      expect(done.stderr.toString()).toBe("err");
      expect(done.exit).toMatchObject({ exit_code: 3, timed_out: false, stdout_truncated: false });
      expect(done.exit?.duration_us).toBeGreaterThan(0);
    });

    test("answers as soon as its command runs, which may print nothing for long", async () => {
      const gone = new AbortController();
      let started = false;
      const onStarted = () => {
        started = true;
        gone.abort();
      };
      const call = { argv: ["sleep", "3600"], timeout_ms: 3_600_000 };
      await node.exec(machineId, call, { signal: gone.signal, onStarted }).catch(() => {});
      expect(started).toBe(true);
    });

    test("reports a signal as 128 + its number", async () => {
      const done = await node.exec(machineId, { argv: sh("kill -TERM $$") });
      expect(done.exit?.exit_code).toBe(143);
    });

    test("has an empty standard input", async () => {
      const done = await node.exec(machineId, { argv: ["cat"], timeout_ms: 10_000 });
      expect(done.exit).toMatchObject({ exit_code: 0, timed_out: false });
      expect(done.stdout.length).toBe(0);
    });

    test("is killed with its children when its time is over, and keeps the output so far", async () => {
      const startedAt = Date.now();
      const argv = sh("echo before; sleep 60 & sleep 60; echo after");
      const done = await node.exec(machineId, { argv, timeout_ms: 4_000 });
      expect(done.exit).toMatchObject({ exit_code: -1, timed_out: true });
      expect(done.stdout.toString()).toBe("before\n");
      expect(Date.now() - startedAt).toBeLessThan(30_000);
    });

    test("sees the variables it is given, beside a base environment", async () => {
      const env = { GREETING: "grüß dich\n2nd line" };
      const done = await node.exec(machineId, { argv: sh('printf %s "$GREETING|$HOME|$PATH"'), env });
      const [greeting, home, path] = done.stdout.toString().split("|");
      expect(greeting).toBe(env.GREETING);
      expect(home).not.toBe("");
      expect(path).toContain("/usr/bin");
    });

    test("starts in /workspace, or where cwd says, relative to it", async () => {
      const made = await node.exec(machineId, { argv: sh("mkdir -p deep/er && pwd") });
      expect(made.stdout.toString()).toMatch(/workspace\n$/);
      const relative = await node.exec(machineId, { argv: ["pwd"], cwd: "deep/er" });
      expect(relative.stdout.toString()).toMatch(/workspace\/deep\/er\n$/);
      const absolute = await node.exec(machineId, { argv: ["pwd"], cwd: "/" });
      expect(absolute.stdout.toString()).toBe("/\n");
    });

    test("refuses a cwd that is missing or a file", async () => {
      const missing = await node.exec(machineId, { argv: ["pwd"], cwd: "/no/such/place" });
      expect(missing).toMatchObject({ status: 400, refusal: { code: "cwd_not_found" } });
      const file = await node.exec(machineId, { argv: ["pwd"], cwd: "/etc/passwd" });
      expect(file).toMatchObject({ status: 400, refusal: { code: "cwd_not_a_directory" } });
    });

    test("answers 127 for a command that is not there and 126 for one that cannot run", async () => {
      const missing = await node.exec(machineId, { argv: ["no-such-command"] });
      expect(missing.exit?.exit_code).toBe(127);
      expect(missing.stderr.toString()).toMatch(/^.+\n$/);
      const unfit = await node.exec(machineId, { argv: ["/etc/passwd"] });
      expect(unfit.exit?.exit_code).toBe(126);
    });

    test("refuses a call that does not fit the contract", async () => {
      const empty = await node.exec(machineId, { argv: [] });
      expect(empty).toMatchObject({ status: 400, refusal: { code: "invalid" } });
      const endless = await node.exec(machineId, { argv: ["true"], timeout_ms: 10 ** 9 });
      expect(endless).toMatchObject({ status: 400, refusal: { code: "invalid" } });
    });

    test("drops what is over the output limit while the command runs to its end", async () => {
      const argv = sh("head -c 300000 /dev/zero; echo done >&2");
      const done = await node.exec(machineId, { argv, output_limit_bytes: 1000 });
      expect(done.stdout.length).toBe(1000);
      expect(done.stderr.toString()).toBe("done\n");
      expect(done.exit).toMatchObject({ exit_code: 0, stdout_truncated: true, stderr_truncated: false });
    });

    test("delivers large output whole", async () => {
      const line = "0123456789abcdef".repeat(64);
      const lines = 16 * 1024;
      const hash = createHash("sha256");
      let bytes = 0;
      const done = await node.exec(
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
      const running = node
        .exec(
          machineId,
          { argv: sh(`echo up; sleep ${tag} & sleep ${tag}`) },
          { signal: caller.signal, onStdout: () => seen.resolve() },
        )
        .catch(() => undefined);
      await seen.promise;
      await eventually(async () => expect(await countProcesses(node, machineId, `sleep ${tag}`)).toBe(2));
      caller.abort();
      await running;
      await eventually(async () => expect(await countProcesses(node, machineId, `sleep ${tag}`)).toBe(0));
    });

    test("ends 500 ms after its main process although a child holds the pipe", async () => {
      const startedAt = Date.now();
      const done = await node.exec(machineId, { argv: sh("sleep 20 & echo left") });
      expect(done.stdout.toString()).toBe("left\n");
      expect(done.exit?.exit_code).toBe(0);
      expect(Date.now() - startedAt).toBeLessThan(15_000);
    });

    test("runs beside others", async () => {
      const execs = Array.from({ length: 8 }, (_, i) =>
        node.exec(machineId, { argv: sh(`sleep 0.5; echo ${i}`) }),
      );
      const outputs = (await Promise.all(execs)).map((done) => done.stdout.toString());
      expect(outputs).toEqual(Array.from({ length: 8 }, (_, i) => `${i}\n`));
    });
  });

  describe("a file", () => {
    test("is written whole, with its parents, and replaces what was there", async () => {
      const bytes = Buffer.from(Array.from({ length: 100_000 }, (_, i) => (i * 7) % 256));
      await node.putFile(machineId, "/workspace/new/dir/data.bin", Buffer.from("old"));
      const put = await node.putFile(machineId, "/workspace/new/dir/data.bin", bytes);
      expect(put).toEqual({ status: 200, body: { bytes: bytes.length } });
      const sum = await node.exec(machineId, { argv: ["sha256sum", "data.bin"], cwd: "new/dir" });
      expect(sum.stdout.toString().slice(0, 64)).toBe(createHash("sha256").update(bytes).digest("hex"));
    });

    test("needs a path", async () => {
      expect(await node.putFile(machineId, "", Buffer.from("x"))).toMatchObject(refusal(400, "invalid"));
    });
  });
}

function refusal(status: number, code: string) {
  return { status, body: { code, message: expect.stringMatching(/./) } };
}

/** Processes whose command line is exactly `commandLine`, counted from inside the machine. */
async function countProcesses(node: NodeCaller, machineId: string, commandLine: string): Promise<number> {
  const done = await node.exec(machineId, { argv: ["pgrep", "-xfc", commandLine] });
  return Number(done.stdout.toString().trim());
}
