import { release } from "node:os";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { raiseCeiling } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { ask, client, service, sh, withSession } from "../support/http.ts";
import { AHEAD, machineTraces } from "../support/machine-traces.ts";

/** Limit of every organisation by default. */
const CEILING = 10;
const AT_ONCE = size({ ci: 4, full: CEILING });

test("a session goes live by itself, and its kernel is not the host's", async () => {
  const created = await ask("/v1/sessions", { body: { name: "first", env: { GREETING: "hello there" } } });
  expect(created.status).toBe(200);
  const id = created.body.session_id as string;
  try {
    expect(id).toMatch(/^[a-z0-9]{21}$/);
    expect(["creating", "live"]).toContain(created.body.state);
    // No polling: an exec on a creating session waits for it.
    const uname = await client.sessions.exec(id, { command: sh('uname -r; echo "$GREETING"') });
    const [kernel, greeting] = uname.stdout.split("\n");
    expect(kernel).toMatch(/^\d+\.\d+/);
    expect(kernel).not.toBe(release());
    expect(greeting).toBe("hello there");
    expect(await client.sessions.get(id)).toMatchObject({ state: "live", name: "first", size: "small" });
  } finally {
    await client.sessions.delete(id);
  }
});

test("a session keeps files and background processes between execs, and runs execs side by side", async () => {
  await withSession(async (id) => {
    const start =
      "echo 41 > count; (sleep 3333 > /dev/null 2>&1 &); until pgrep -xf 'sleep 3333'; do sleep 0.1; done";
    await client.sessions.exec(id, { command: sh(start) });
    const second = await client.sessions.exec(id, {
      command: sh("echo $(($(cat count) + 1)); pgrep -xfc 'sleep 3333'"),
    });
    expect(second).toMatchObject({ stdout: "42\n1\n", exit_code: 0, sandbox_id: id });
    const both = await Promise.all([
      client.sessions.exec(id, { command: sh("while [ ! -e flag ]; do sleep 0.1; done; echo seen") }),
      client.sessions.exec(id, { command: ["touch", "flag"] }),
    ]);
    expect(both[0].stdout).toBe("seen\n");
  });
});

test("the user is sandbox, with sudo unless it was withheld", async () => {
  await withSession(async (id) => {
    const who = await client.sessions.exec(id, { command: sh("id -un; pwd; sudo id -un") });
    expect(who.stdout).toBe("sandbox\n/workspace\nroot\n");
  });
  await withSession(
    async (id) => {
      const denied = await client.sessions.exec(id, { command: sh("id -un; sudo -n id -un") });
      expect(denied.stdout).toBe("sandbox\n");
      expect(denied.exit_code).not.toBe(0);
    },
    { no_sudo: true },
  );
});

test("a live session has the right time of day after it was saved or copied", async () => {
  await withSession(async (id) => {
    const behindMs = async () => {
      const { stdout } = await client.sessions.exec(id, { command: ["date", "+%s"] });
      return Date.now() - Number(stdout) * 1000;
    };
    // Nothing else sets the clock of a running session: a wrong clock shows whether saving and copying correct it.
    const setBack = () => client.sessions.exec(id, { command: sh("sudo date -s '1 hour ago'") });
    const expectKept = async (keep: () => Promise<unknown>) => {
      await setBack();
      expect(await behindMs()).toBeGreaterThan(3_000_000);
      await keep();
      expect(Math.abs(await behindMs())).toBeLessThan(600_000);
    };
    await expectKept(async () => {
      const { checkpoint_id } = await client.checkpoints.create(id);
      await client.checkpoints.delete(checkpoint_id);
    });
    await expectKept(async () => {
      const { children } = await client.sessions.fork(id);
      for (const child of children) await client.sessions.delete(child);
    });
  });
});

describe(`${AT_ONCE} sessions at once`, () => {
  beforeAll(() => raiseCeiling(service, AT_ONCE));
  afterAll(() => raiseCeiling(service, CEILING));

  test("live side by side, each its own machine; one more is over the ceiling", async () => {
    const created = await Promise.all(Array.from({ length: AT_ONCE }, () => client.sessions.create()));
    const ids = created.map((session) => session.session_id);
    try {
      const outputs = await Promise.all(
        ids.map((id) =>
          client.sessions.exec(id, {
            command: sh(`echo ${id} > mine; cat mine /etc/machine-id /proc/sys/kernel/random/uuid; hostname`),
            timeout_ms: 120_000 * SLOWNESS,
          }),
        ),
      );
      const lines = outputs.map((output) => output.stdout.trim().split("\n"));
      expect(lines.map((each) => each[0])).toEqual(ids);
      for (const column of [1, 2, 3]) {
        expect(new Set(lines.map((each) => each[column])).size).toBe(AT_ONCE);
      }
      const over = await ask("/v1/sessions", { body: {} });
      expect(over).toMatchObject({ status: 429 });
      expect(["account_concurrency_exceeded", "key_concurrency_exceeded"]).toContain(over.body.code);
      expect(Number(over.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      const batch = await client.batchExec({
        session_ids: [...ids.slice(0, 3), "a".repeat(21)],
        command: ["cat", "mine"],
      });
      expect(batch.results.slice(0, 3)).toMatchObject(
        ids.slice(0, 3).map((id) => ({ session_id: id, stdout: `${id}\n` })),
      );
      expect(batch.results[3]).toMatchObject({ code: "not_found" });
    } finally {
      await Promise.all(ids.map((id) => client.sessions.delete(id)));
    }
  });
});

test("after DELETE no process, mount, namespace, uid or file of the session is left", async () => {
  const before = await eventually(() => {
    const traces = machineTraces(service.dataDir);
    // The pool keeps namespaces ready, which have no owner yet.
    expect(traces).toMatchObject({ processes: 0, uids: 0, folders: [], slots: AHEAD, netns: AHEAD });
    return traces;
  }, 60_000);
  const ids = (await Promise.all([client.sessions.create(), client.sessions.create()])).map(
    (s) => s.session_id,
  );
  for (const id of ids) {
    const exec = await client.sessions.exec(id, {
      command: sh("(sleep 999 &) ; dd if=/dev/urandom of=big bs=1M count=4"),
    });
    expect(exec.exit_code).toBe(0);
  }
  const during = machineTraces(service.dataDir);
  expect(during.processes).toBeGreaterThanOrEqual(2);
  expect(during.uids).toBe(2);
  expect(during.folders.length).toBe(2);
  expect(during.namespaces).toBeGreaterThanOrEqual(2 * 5);

  for (const id of ids)
    expect(await ask(`/v1/sessions/${id}`, { method: "DELETE" })).toMatchObject({ status: 204 });
  const atOnce = machineTraces(service.dataDir);
  expect(atOnce).toMatchObject({ processes: 0, uids: 0, folders: [] });
  await eventually(() => expect(machineTraces(service.dataDir)).toEqual(before), 60_000);

  for (const id of ids) {
    expect(await ask(`/v1/sessions/${id}`)).toMatchObject({ status: 404, body: { code: "not_found" } });
    expect(await ask(`/v1/sessions/${id}`, { method: "DELETE" })).toMatchObject({ status: 404 });
  }
  const { sessions } = await client.sessions.list({ state: "ended", limit: 50 });
  const ended = sessions.filter((row) => ids.includes(row.session_id));
  expect(ended).toHaveLength(2);
  for (const row of ended) expect(row).toMatchObject({ state: "ended", end_reason: "client_destroy" });
});
