/**
 * Guests whose root broke the files that the agent writes and reads: they are paused, woken, copied and restored all
 * the same. A guest that really cannot be copied is refused, and loses nothing.
 */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { KEEP_ITS_NAME, takeOver } from "../support/hostile-guest.ts";
import { type Answer, ask, client, service, sh, withSession } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";

const LIMIT = { timeout: 600_000 * SLOWNESS };
const DRAW = "python3 -c 'import os; print(os.getrandom(16).hex())'";

let id: string;
beforeAll(async () => {
  id = (await client.sessions.create()).session_id;
  await client.sessions.waitUntilLive(id);
  await checkpoint(id, "whole");
}, 300_000 * SLOWNESS);
afterAll(async () => {
  await ask(`/v1/sessions/${id}`, { method: "DELETE" });
});

async function run(sessionId: string, script: string): Promise<string> {
  const done = await client.sessions.exec(sessionId, { command: sh(script), timeout_ms: 60_000 });
  expect(done, script).toMatchObject({ exit_code: 0 });
  return done.stdout.trim();
}

const verb = (sessionId: string, name: string, body: object = {}): Promise<Answer> =>
  ask(`/v1/sessions/${sessionId}/${name}`, { body });
const restore = (sessionId: string, to: string) => verb(sessionId, "restore", { checkpoint_id: to });
const stateOf = async (sessionId: string) => (await client.sessions.get(sessionId)).state;
const processOf = () => machinePid(service.dataDir, id);

async function checkpoint(sessionId: string, name: string): Promise<string> {
  const { status, body } = await verb(sessionId, "checkpoints", { name });
  expect(status, JSON.stringify(body)).toBe(200);
  return body.checkpoint_id as string;
}

test.each([
  [
    "other things in the place of its files and of the random device",
    "others",
    `cd /etc; rm -f hostname hosts machine-id /dev/urandom /dev/random /run/vivarium/generation
     mkfifo hostname /dev/urandom /run/vivarium/generation; mkdir -p hosts ssh/ssh_host_rsa_key/inside
     echo kept > /workspace/kept; ln -s /workspace/kept machine-id; ln -s /proc/sysrq-trigger /dev/random`,
  ],
  [
    "files that cannot be written",
    "unwritable",
    `cd /etc; mkdir -p ssh; echo key > ssh/ssh_host_rsa_key; chattr +i hostname hosts machine-id ssh/ssh_host_rsa_key
     mount --bind /run/vivarium /run/vivarium; mount -o remount,bind,ro /run/vivarium`,
  ],
  ["a root file system that takes no writes", "frozen", "sync; fsfreeze -f /"],
])("a guest with %s is woken, copied and restored", LIMIT, async (_title, name, breakage) => {
  const kept = await run(id, "echo 1 > /dev/shm/kept; cat /dev/shm/kept");
  await run(id, `sudo sh -ec '${breakage}'`);

  expect(await verb(id, "pause")).toMatchObject({ status: 200, body: { state: "paused" } });
  expect(await run(id, "cat /dev/shm/kept; hostname")).toBe(`${kept}\n${id}`);

  const forked = await verb(id, "fork", { count: 2 });
  expect(forked.status, JSON.stringify(forked.body)).toBe(200);
  const children = forked.body.children as string[];
  const drawn = await Promise.all(children.map((child) => run(child, `hostname; ${DRAW}`)));
  expect(drawn.map((lines) => lines.split("\n")[0])).toEqual(children);
  expect(new Set(drawn.map((lines) => lines.split("\n")[1])).size).toBe(2);
  for (const child of children) await ask(`/v1/sessions/${child}`, { method: "DELETE" });

  await checkpoint(id, name);
  await run(id, "echo 2 > /dev/shm/kept");
  const restored = await restore(id, name);
  expect(restored, JSON.stringify(restored.body)).toMatchObject({ status: 200, body: { state: "live" } });
  expect(await run(id, "cat /dev/shm/kept; hostname")).toBe(`${kept}\n${id}`);
  expect(await restore(id, "whole")).toMatchObject({ status: 200 });
  expect(await run(id, "cat /etc/hostname")).toBe(id);
});

test(
  "a checkpoint whose guest refuses to be copied is a conflict, and the session is as it was",
  LIMIT,
  async () => {
    await run(id, KEEP_ITS_NAME[2] as string);
    const unfit = await checkpoint(id, "unfit");
    const before = processOf();
    const refused = await restore(id, "unfit");
    expect(refused).toMatchObject({ status: 409, body: { code: "conflict" } });
    expect(refused.body.error).toMatch(
      /^checkpoint_id: the guest in this checkpoint does not come back.*another/,
    );
    expect([await stateOf(id), processOf(), await run(id, "hostname")]).toEqual(["live", before, id]);

    expect(await verb(id, "fork")).toMatchObject({ status: 409, body: { code: "conflict" } });
    const started = await ask(`/v1/checkpoints/${unfit}/sessions`, { body: {} });
    expect(started).toMatchObject({ status: 409, body: { code: "conflict" } });
    const created = (await client.sessions.create({ from_checkpoint: unfit })).session_id;
    await eventually(async () => {
      const record = await client.sessions.get(created);
      expect(record.status_reason).toMatch(/^the guest in the saved state .* does not come back/);
    }, 60_000);

    await ask(`/v1/sessions/${created}`, { method: "DELETE" });
    expect(await verb(id, "pause")).toMatchObject({ status: 200 });
    expect(await restore(id, "unfit")).toMatchObject({ status: 409, body: { code: "conflict" } });
    expect(await stateOf(id)).toBe("paused");
    expect(await run(id, "hostname")).toBe(id);
    expect(await restore(id, "whole")).toMatchObject({ status: 200, body: { state: "live" } });
    expect(await run(id, "hostname")).toBe(id);
  },
);

test(
  "a session that was paused with its agent replaced is a conflict to wake, and goes back to a checkpoint",
  LIMIT,
  async () => {
    await withSession(async (bad) => {
      await checkpoint(bad, "whole");
      await client.sessions.exec(bad, { command: takeOver("silence") });
      await eventually(async () => {
        const answer = await ask(`/v1/sessions/${bad}/exec`, {
          body: { command: ["true"], timeout_ms: 2_000 },
        });
        expect(answer.status).not.toBe(200);
      }, 60_000);
      expect(await verb(bad, "pause")).toMatchObject({ status: 200, body: { state: "paused" } });
      const refused = await verb(bad, "exec", { command: ["true"] });
      expect(refused).toMatchObject({ status: 409, body: { code: "conflict" } });
      expect(refused.headers.get("retry-after")).toBeNull();
      expect(refused.body.error).toContain("restore it to a checkpoint");
      expect(await stateOf(bad)).toBe("paused");
      const restored = await restore(bad, "whole");
      expect(restored, JSON.stringify(restored.body)).toMatchObject({ status: 200, body: { state: "live" } });
      expect(await run(bad, "echo here")).toBe("here");
    });
  },
);
