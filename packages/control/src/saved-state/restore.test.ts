import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onContinue = () => {};
  control.node.onDelete = () => {};
  await control.destroyAll();
});
afterAll(() => control.close());

const restore = (id: string, checkpointId: unknown, query = "") =>
  control.ask(`POST /v1/sessions/${id}/restore${query}`, { body: { checkpoint_id: checkpointId } });
const checkpoint = async (id: string, body?: object): Promise<string> =>
  (await control.ask(`POST /v1/sessions/${id}/checkpoints`, { body })).body.checkpoint_id;
const pause = (id: string) => control.ask(`POST /v1/sessions/${id}/pause`);
const get = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];
const machinesOf = (id: string) =>
  [...control.node.machines]
    .filter(([name]) => name.startsWith(id))
    .map(([name, { state }]) => [name.slice(id.length + 1), state]);

test("a live session is restored in place: another machine, the same id and record", async () => {
  const id = await control.createLive({ name: "kept", env: { A: "1" }, max_lifetime_ms: 3_600_000 });
  const chk = await checkpoint(id);
  const before = await get(id);
  const { status, body } = await restore(id, chk);
  expect(status).toBe(200);
  expect({ ...body, last_active_at: "" }).toEqual({ ...before, last_active_at: "" });
  expect(machinesOf(id)).toEqual([["2", "running"]]);
  expect(control.node.machines.get(`${id}-2`)?.spec).toEqual({
    network: { generation: 2, egress: { mode: "allow", allow: [] }, exposed: [] },
    template: "base",
    size: "small",
    hostname: id,
    no_sudo: false,
    snapshot_id: chk,
    hold: true,
  });
  expect((await rowOf(id)).op).toBe(null);
  expect((await control.exec(id)).status).toBe(200);
  expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-2`);
});

test("a session can be restored to any of its checkpoints, in any order, by id or name", async () => {
  const id = await control.createLive();
  const made: string[] = [];
  for (const name of ["a", "b", "c"]) made.push(await checkpoint(id, { name }));
  let incarnation = 1;
  for (const [target, expected] of [
    [made[1], made[1]],
    ["c", made[2]],
    ["a", made[0]],
    [made[2], made[2]],
  ]) {
    expect((await restore(id, target)).status).toBe(200);
    incarnation++;
    expect(control.node.machines.get(`${id}-${incarnation}`)?.spec?.snapshot_id).toBe(expected);
    expect(machinesOf(id)).toEqual([[String(incarnation), "running"]]);
  }
});

test("the old machine exists until the new one is loaded, and is removed before the new one is continued", async () => {
  const id = await control.createLive();
  const chk = await checkpoint(id);
  const seen: unknown[] = [];
  control.node.onStart = () => void seen.push(["load", machinesOf(id)]);
  // The sweep may delete the old machine too, so only calls that find it are recorded.
  control.node.onDelete = (machineId) => {
    if (machineId.startsWith(id) && control.node.machines.has(machineId))
      seen.push(["delete", machinesOf(id)]);
  };
  control.node.onContinue = () => void seen.push(["continue", machinesOf(id)]);
  await restore(id, chk);
  expect(seen).toEqual([
    ["load", [["1", "running"]]],
    [
      "delete",
      [
        ["1", "running"],
        ["2", "held"],
      ],
    ],
    ["continue", [["2", "held"]]],
  ]);
});

test("the live period and the lifetime are not reset", async () => {
  const id = await control.createLive({ max_lifetime_ms: 3_600_000 });
  await control.sql.query("update sessions set live_since = now() - interval '1 hour' where id = $1", [id]);
  const chk = await checkpoint(id);
  const before = await get(id);
  const { body } = await restore(id, chk);
  expect([body.active_since, body.created_at]).toEqual([before.active_since, before.created_at]);
});

test("a paused session becomes live, and its wake_at is cleared", async () => {
  const id = await control.createLive();
  const chk = await checkpoint(id);
  const wakeAt = new Date(Date.now() + 3_600_000).toISOString();
  await control.ask(`POST /v1/sessions/${id}/pause`, { body: { wake_at: wakeAt } });
  const { status, body } = await restore(id, chk);
  expect([status, body.state]).toEqual([200, "live"]);
  expect(body).not.toHaveProperty("wake_at");
  expect(body).not.toHaveProperty("paused_at");
  expect(machinesOf(id)).toEqual([["2", "running"]]);
});

test("a paused session needs a free slot, a live one has its own", async () => {
  const id = await control.createLive();
  const chk = await checkpoint(id);
  await pause(id);
  const others = await Promise.all(Array.from({ length: 10 }, () => control.createLive()));
  const refused = await restore(id, chk);
  expect([refused.status, refused.body.code]).toEqual([429, "account_concurrency_exceeded"]);
  expect((await get(id)).state).toBe("paused");
  const own = await checkpoint(others[0] as string);
  expect((await restore(others[0] as string, own)).status).toBe(200);
});

test("a session can be restored to the checkpoint that it was started from", async () => {
  const parent = await control.createLive();
  const chk = await checkpoint(parent, { name: "seed" });
  const id = await control.createLive({ from_checkpoint: chk });
  expect((await restore(id, chk)).status).toBe(200);
  // The name belongs to the parent's checkpoints.
  expect((await restore(id, "seed")).status).toBe(404);
});

test("a checkpoint of another session of the organisation is a conflict, and changes nothing", async () => {
  const [one, other] = [await control.createLive(), await control.createLive()];
  const chk = await checkpoint(other);
  const answer = await restore(one, chk);
  expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
  expect(answer.body.error).toMatch(/^checkpoint_id: this is a checkpoint of another session/);
  expect(machinesOf(one)).toEqual([["1", "running"]]);
});

test("an unknown, deleted or foreign checkpoint is the same 404", async () => {
  const key = await control.addKey();
  const theirs = await control.createLive({}, key);
  const foreign = (await control.ask(`POST /v1/sessions/${theirs}/checkpoints`, { key })).body.checkpoint_id;
  const id = await control.createLive();
  const gone = await checkpoint(id);
  await control.ask(`DELETE /v1/checkpoints/${gone}`);
  const bodies = [];
  for (const unknown of [foreign, gone, `chk_${randomId()}`]) {
    const { status, body } = await restore(id, unknown);
    expect(status).toBe(404);
    bodies.push(body);
  }
  expect(bodies).toEqual([bodies[0], bodies[0], bodies[0]]);
  for (const unknown of ["", "nothing", "chk_", "%00"]) {
    const { status, body } = await restore(id, unknown);
    expect([status, body.code]).toEqual([404, "not_found"]);
  }
});

test.each([
  [undefined, /^checkpoint_id: must be a string, got nothing/],
  [null, /^checkpoint_id: must be a string, got null/],
  [7, /^checkpoint_id: must be a string, got 7/],
  ["\0", /^checkpoint_id: must not contain a NUL/],
])("checkpoint_id = %j is refused", async (value, message) => {
  const answer = await restore(randomId(), value);
  expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
  expect(answer.body.error).toMatch(message);
});

test("a creating, failed or expired session is not restored", async () => {
  const id = await control.createLive();
  const chk = await checkpoint(id);
  for (const [state, status, code] of [
    ["creating", 409, "session_not_live"],
    ["failed", 409, "conflict"],
    ["lifetime_expired", 410, "session_ended"],
    ["node_lost", 410, "session_node_lost"],
  ] as const) {
    await control.sql.query(
      "update sessions set state = $2, machine_released_at = now(), provision_claimed_until = now() + interval '1 hour' where id = $1",
      [id, state],
    );
    const answer = await restore(id, chk);
    expect([state, answer.status, answer.body.code]).toEqual([state, status, code]);
    if (state === "creating") continue;
    const unknown = await restore(id, `chk_${randomId()}`);
    expect([state, unknown.status, unknown.body.code]).toEqual([state, status, code]);
  }
});

describe("before the switch", () => {
  test.each([
    ["disk_pressure", 503, "node_disk_pressure", "30"],
    ["no_capacity", 503, "unavailable", "5"],
    ["snapshot_damaged", 500, "internal", undefined],
    ["snapshot_not_found", 404, "not_found", undefined],
    ["guest_unfit", 409, "conflict", undefined],
  ] as const)(
    "a refusal of the node with %s leaves the session running as it was",
    async (code, status, shown, retry) => {
      const id = await control.createLive();
      const chk = await checkpoint(id);
      control.node.onStart = () => {
        throw new Refusal(code);
      };
      const answer = await restore(id, chk);
      expect([answer.status, answer.body.code, answer.headers["retry-after"]]).toEqual([
        status,
        shown,
        retry,
      ]);
      expect(machinesOf(id)).toEqual([["1", "running"]]);
      expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 1, op: null });
      control.node.onStart = () => {};
      expect((await restore(id, chk)).status).toBe(200);
    },
  );

  test("a checkpoint whose guest does not come back is answered with the reason and what to do", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    control.node.onStart = () => {
      throw new Refusal("guest_unfit", "its guest says:\u001b[31m\n no");
    };
    for (const state of ["live", "paused"]) {
      const { body } = await restore(id, chk);
      expect([body.code, body.error]).toEqual([
        "conflict",
        "checkpoint_id: the guest in this checkpoint does not come back, and the session is as it was: its guest says: [31m  no; choose another checkpoint",
      ]);
      expect(await rowOf(id)).toMatchObject({ state, incarnation: 1, op: null });
      if (state === "live") await pause(id);
    }
  });

  test("a node that is away is answered, and the session is as it was", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    await control.node.goDown();
    const answer = await restore(id, chk);
    expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
    expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 1, op: null });
    await control.node.listen();
    expect((await restore(id, chk)).status).toBe(200);
  });

  test("a node that goes away during the load is answered, and the restore is rolled back", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    const loading = Promise.withResolvers<void>();
    const loaded = Promise.withResolvers<void>();
    control.node.onStart = () => {
      loading.resolve();
      return loaded.promise;
    };
    const asked = restore(id, chk);
    await loading.promise;
    await control.node.goDown();
    loaded.resolve();
    expect((await asked).body.code).toBe("session_node_unavailable");
    control.node.onStart = () => {};
    await control.node.listen();
    await eventually(async () => expect((await rowOf(id)).op).toBe(null));
    expect(await rowOf(id)).toMatchObject({ state: "live", incarnation: 1 });
    await eventually(() => expect(machinesOf(id)).toEqual([["1", "running"]]));
  });

  test("a paused session stays paused", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    await pause(id);
    control.node.onStart = () => {
      throw new Refusal("disk_pressure");
    };
    expect((await restore(id, chk)).status).toBe(503);
    expect(await rowOf(id)).toMatchObject({ state: "paused", incarnation: 1, op: null });
    await eventually(() => expect(machinesOf(id)).toEqual([]));
    control.node.onStart = () => {};
    expect((await control.exec(id)).status).toBe(200);
  });

  test("a destroy during the request ends it, and no machine remains", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    const asked = restore(id, chk);
    await eventually(async () => expect((await rowOf(id)).op).toBe("restore"));
    expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
    resolve();
    const answer = await asked;
    expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
    await eventually(() => expect(machinesOf(id)).toEqual([]));
    expect(control.node.snapshots.has(chk)).toBe(true);
  });

  test("commands wait until the restore has ended", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    const asked = restore(id, chk);
    await eventually(async () => expect((await rowOf(id)).op).toBe("restore"));
    const command = control.exec(id);
    resolve();
    expect([(await asked).status, (await command).status]).toEqual([200, 200]);
    expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-2`);
  });
});

describe("after the switch", () => {
  test("a machine that cannot be continued is started again from the checkpoint", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    control.node.onContinue = () => {
      throw new Refusal("agent_unavailable");
    };
    expect((await restore(id, chk)).body.state).toBe("live");
    expect(control.node.machines.get(`${id}-2`)).toMatchObject({
      state: "running",
      spec: { snapshot_id: chk },
    });
    expect(control.node.machines.get(`${id}-2`)?.spec).not.toHaveProperty("hold");
    expect(machinesOf(id)).toEqual([["2", "running"]]);
  });

  test("a machine that cannot be started again fails the session, with the reason; its checkpoints stay", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    control.node.onContinue = () => {
      control.node.onStart = () => {
        throw new Refusal("internal");
      };
      throw new Refusal("agent_unavailable");
    };
    const answer = await restore(id, chk);
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    const { body } = await control.until(id, "failed");
    expect(body.status_reason).toBe("the machine is gone from its node");
    expect(control.node.snapshots.has(chk)).toBe(true);
    control.node.onStart = () => {};
    expect((await control.ask(`POST /v1/checkpoints/${chk}/sessions`)).body.state).toBe("live");
  });

  test("a resume waits until the new machine is continued", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    const held = Promise.withResolvers<void>();
    control.node.onContinue = () => held.promise;
    const asked = restore(id, chk);
    await eventually(async () => expect((await rowOf(id)).op).toBe("settle"));
    let isAnswered = false;
    const resumed = control.ask(`POST /v1/sessions/${id}/resume`).finally(() => {
      isAnswered = true;
    });
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(isAnswered).toBe(false);
    held.resolve();
    expect([(await asked).status, (await resumed).status]).toEqual([200, 200]);
  });

  test("while the node is away the session waits, and it continues when the node is back", async () => {
    const id = await control.createLive();
    const chk = await checkpoint(id);
    let down: Promise<void> | undefined;
    control.node.onContinue = () => {
      if (down === undefined) down = control.node.goDown();
      throw new Refusal("internal");
    };
    const answer = await restore(id, chk);
    expect([answer.status, answer.body.code]).toEqual([503, "session_node_unavailable"]);
    await down;
    control.node.onContinue = () => {};
    await control.node.listen();
    await eventually(async () => expect(machinesOf(id)).toEqual([["2", "running"]]), 10_000);
    await eventually(async () => expect((await rowOf(id)).op).toBe(null));
    expect((await control.exec(id)).status).toBe(200);
  });
});

test("the timing covers the whole operation, is answered on request, and stays in the record", async () => {
  const id = await control.createLive();
  const chk = await checkpoint(id);
  const each = 60;
  const later = () => new Promise<void>((resolve) => setTimeout(resolve, each));
  control.node.onStart = later;
  control.node.onDelete = later;
  control.node.onContinue = later;
  const { body } = await restore(id, chk, "?timing=true");
  expect(body.timing).toMatchObject({ queue: 1, disk: 2, load: 3, handshake: 4, total: expect.any(Number) });
  // A timer may be early by a millisecond.
  expect(body.timing.total).toBeGreaterThanOrEqual(3 * (each - 1));
  await eventually(async () => {
    const read = await control.ask(`GET /v1/sessions/${id}?timing=true`);
    expect(read.body.timing).toEqual(body.timing);
  });
});
