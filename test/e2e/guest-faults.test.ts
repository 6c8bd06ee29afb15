/** Damage that a guest may do to itself. A neighbour session, and the API, answer all the time. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { residentBytes } from "../support/host-processes.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { servicePid } from "../support/service.ts";

const MIB = 1024 * 1024;
let neighbour: string;

beforeAll(async () => {
  neighbour = (await client.sessions.create({ name: "neighbour" })).session_id;
  await client.sessions.exec(neighbour, { command: ["true"] });
});

afterAll(async () => {
  await client.sessions.delete(neighbour);
});

/** Repeats that the neighbour and the API answer, until `until` is resolved or rejected. */
async function neighbourAnswersWhile(until: Promise<unknown>): Promise<number> {
  let isOver = false;
  const ended = until.finally(() => {
    isOver = true;
  });
  ended.catch(() => {});
  let answers = 0;
  while (!isOver) {
    const exec = await client.sessions.exec(neighbour, { command: ["echo", "here"], timeout_ms: 60_000 });
    expect(exec).toMatchObject({ stdout: "here\n", exit_code: 0 });
    expect((await ask("/v1/healthz", { authorization: null })).status).toBe(200);
    answers++;
  }
  await ended;
  return answers;
}

test("a fork bomb", async () => {
  await withSession(async (id) => {
    const bomb = client.sessions.exec(id, {
      command: ["bash", "-c", ":(){ :|:& };:; sleep 60"],
      timeout_ms: 8000,
    });
    // The session may answer late or not at all; its answers are not checked.
    const ended = bomb.catch(() => undefined);
    expect(await neighbourAnswersWhile(ended)).toBeGreaterThan(0);
    expect(await ask(`/v1/sessions/${id}`, { method: "DELETE" })).toMatchObject({ status: 204 });
    expect(() => machinePid(service.dataDir, id)).toThrow("has no machine");
  });
});

test("endless output", async () => {
  await withSession(async (id) => {
    const pids = [servicePid(service, "control"), servicePid(service, "node")];
    const before = pids.map(residentBytes);
    const flood = client.sessions.exec(id, { command: sh("yes & yes >&2"), timeout_ms: 12_000 });
    expect(await neighbourAnswersWhile(flood)).toBeGreaterThan(0);
    const result = await flood;
    expect(result).toMatchObject({ timed_out: true, exit_code: -1, truncated: true });
    expect(result.stdout.length).toBe(4 * MIB);
    for (const [i, pid] of pids.entries()) {
      expect(residentBytes(pid) - (before[i] ?? 0)).toBeLessThan(160 * MIB);
    }
    await eventually(async () => {
      const left = await client.sessions.exec(id, { command: ["pgrep", "-xc", "yes"] });
      expect(left.stdout).toBe("0\n");
    });
  });
});

test("a filled disk", async () => {
  await withSession(async (id) => {
    const fill = sh(
      "fallocate -l $(($(df --output=avail -B1 . | tail -1) - 65536)) fill; cat /dev/zero > rest; df . | tail -1",
    );
    const filled = client.sessions.exec(id, { command: fill, timeout_ms: 120_000 });
    await neighbourAnswersWhile(filled);
    const full = await client.sessions.exec(id, { command: sh("head -c 100000 /dev/zero > more") });
    expect(full.exit_code).not.toBe(0);
    expect(full.stderr).toContain("No space left on device");
    const again = await client.sessions.exec(id, {
      command: sh("rm -f fill rest more && echo ok > more && cat more"),
    });
    expect(again.stdout).toBe("ok\n");
  });
});

test("memory that runs out", async () => {
  await withSession(async (id) => {
    const hog = ["python3", "-c", "x = []\nwhile True: x.append(bytearray(b'x' * (64 << 20)))"];
    const killed = client.sessions.exec(id, { command: hog, timeout_ms: 90_000 });
    await neighbourAnswersWhile(killed);
    expect((await killed).exit_code).not.toBe(0);
    const after = await client.sessions.exec(id, { command: ["echo", "recovered"], timeout_ms: 60_000 });
    expect(after.stdout).toBe("recovered\n");
  });
});
