import { type Output, Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { createApp } from "../app.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onSnapshot = () => {};
  control.node.onDelete = () => {};
  control.node.onExec = (_call, output) => output().exit();
  await control.destroyAll();
});
afterAll(() => control.close());

const pause = (id: string, body?: object, query = "") =>
  control.ask(`POST /v1/sessions/${id}/pause${query}`, { body });
const resume = (id: string, query = "") => control.ask(`POST /v1/sessions/${id}/resume${query}`);
const read = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const destroy = (id: string) => control.ask(`DELETE /v1/sessions/${id}`);
const outcome = (answer: Answer) => [answer.status, answer.body.code, answer.headers["retry-after"]];
const machinesOf = (id: string) => [...control.node.machines.keys()].filter((name) => name.startsWith(id));

async function snapshotOf(id: string): Promise<string> {
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [id]);
  return rows[0].snapshot_id;
}

async function operationOf(id: string): Promise<string | null> {
  const { rows } = await control.sql.query("select op from sessions where id = $1", [id]);
  return rows[0].op;
}

async function createPaused(body: object = {}): Promise<string> {
  const id = await control.createLive(body);
  expect((await pause(id)).status).toBe(200);
  return id;
}

/** A promise that a hook of the node waits for. */
function gate(): { opened: Promise<void>; reached: Promise<void>; reach: () => void; open: () => void } {
  const opened = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  return { opened: opened.promise, reached: reached.promise, reach: reached.resolve, open: opened.resolve };
}

/** A test cannot see that a request has found an operation in flight, so this waits far longer than that takes. */
const foundBusy = () => new Promise((resolve) => setTimeout(resolve, 1_000));

/** Blocks captures until `open` is called. */
function holdCaptures() {
  const held = gate();
  control.node.onSnapshot = async () => {
    held.reach();
    await held.opened;
  };
  return held;
}

function holdStarts() {
  const held = gate();
  control.node.onStart = async () => {
    held.reach();
    await held.opened;
  };
  return held;
}

describe("a pause", () => {
  test("saves the session, shows it as paused, and removes its machine", async () => {
    const id = await control.createLive();
    const { status, body } = await pause(id);
    expect([status, body.state]).toEqual([200, "paused"]);
    expect(body).toMatchObject({ snapshot_tier: "hot", archive: { status: "unavailable" } });
    expect(Date.parse(body.paused_at)).toBeGreaterThanOrEqual(Date.parse(body.created_at));
    expect(Object.keys(body)).not.toEqual(expect.arrayContaining(["active_since"]));
    expect(body).not.toHaveProperty("wake_at");
    await eventually(() => expect(machinesOf(id)).toEqual([]));
    const saved = control.node.snapshots.get(await snapshotOf(id));
    expect(saved?.spec).toEqual({ machine_id: `${id}-1`, after: "hold" });
    expect((await control.ask("GET /v1/org")).body.capacity.running).toBe(0);
    const { body: listed } = await control.ask("GET /v1/sessions?state=paused");
    expect(listed.sessions.map((one: { session_id: string }) => one.session_id)).toEqual([id]);
  });

  test("answers when the state is durable, not before", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    const answer = pause(id);
    await held.reached;
    expect((await read(id)).state).toBe("live");
    held.open();
    expect((await answer).body.state).toBe("paused");
  });

  test("of a session that is being created is 409, and of a failed one too", async () => {
    const held = holdStarts();
    const id = await control.create();
    expect(outcome(await pause(id))).toEqual([409, "session_not_live", "1"]);
    control.node.onStart = () => {
      throw new Refusal("internal");
    };
    held.open();
    const failed = await control.create();
    await control.until(failed, "failed");
    expect(outcome(await pause(failed))).toEqual([409, "conflict", undefined]);
    expect(outcome(await resume(failed))).toEqual([409, "conflict", undefined]);
  });

  test("that is requested many times at once happens once, with one answer for all", async () => {
    const id = await control.createLive();
    const answers = await Promise.all(Array.from({ length: 8 }, () => pause(id)));
    expect(answers.map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(control.node.snapshots.size).toBe(1);
  });

  test("that fails on the node leaves the session as it was, for all requests", async () => {
    const id = await control.createLive();
    const held = gate();
    let captures = 0;
    control.node.onSnapshot = async () => {
      captures += 1;
      held.reach();
      await held.opened;
      throw new Refusal("capture_failed", "EIO on /secret");
    };
    const first = pause(id);
    await held.reached;
    const second = pause(id);
    await foundBusy();
    held.open();
    for (const answer of [await first, await second]) {
      expect(outcome(answer)).toEqual([503, "session_unavailable", "2"]);
      expect(answer.body.error).not.toContain("secret");
    }
    expect([captures, await operationOf(id)]).toEqual([1, null]);
    expect(control.node.snapshots.size).toBe(0);
    expect(await read(id)).toMatchObject({ state: "live" });
    expect((await control.exec(id)).status).toBe(200);
    control.node.onSnapshot = () => {};
    expect((await pause(id)).status).toBe(200);
  });

  test.each([
    ["disk_pressure", 503, "node_disk_pressure", "30"],
    ["agent_unavailable", 503, "session_unavailable", "2"],
    ["internal", 500, "internal", undefined],
  ] as const)(
    "that the node refuses with %s is %i, and the older saved state stays",
    async (code, ...expected) => {
      const id = await createPaused();
      await resume(id);
      const older = await snapshotOf(id);
      control.node.onSnapshot = () => {
        throw new Refusal(code);
      };
      expect(outcome(await pause(id))).toEqual(expected);
      expect([(await read(id)).state, await snapshotOf(id)]).toEqual(["live", older]);
      expect(control.node.snapshots.has(older)).toBe(true);
    },
  );

  test("survives a node that breaks the connection and comes back", async () => {
    const id = await control.createLive();
    control.node.onSnapshot = async () => {
      control.node.onSnapshot = () => {};
      await control.node.goDown();
      await control.node.listen();
    };
    expect((await pause(id)).body.state).toBe("paused");
    expect(control.node.snapshots.size).toBe(1);
  });

  test("while the node is away is 503, and changes nothing", async () => {
    const id = await control.createLive();
    await control.node.goDown();
    const answer = await pause(id);
    await control.node.listen();
    expect(outcome(answer)).toEqual([503, "session_node_unavailable", "5"]);
    expect(await operationOf(id)).toBeNull();
    expect((await control.exec(id)).status).toBe(200);
  });

  test("on a server that requires durable pauses is refused, and the session stays live", async () => {
    const id = await control.createLive();
    const strict = await createApp({ ...control.settings, requireDurablePause: true }, silentLog);
    const answer = await strict.server.inject({
      method: "POST",
      url: `/v1/sessions/${id}/pause`,
      headers: { authorization: `Bearer ${control.key}` },
    });
    await strict.close();
    expect([answer.statusCode, answer.json().code, answer.headers["retry-after"]]).toEqual([
      503,
      "archive_unavailable",
      undefined,
    ]);
    expect((await read(id)).state).toBe("live");
  });

  test("answers its timing on request", async () => {
    const id = await control.createLive();
    const { body } = await pause(id, undefined, "?timing=true");
    expect(body.timing).toMatchObject({ freeze: 1, state: 2, memory: 3, disk: 4, publish: 5, stopped: 6 });
    expect(body.timing.total).toBeGreaterThanOrEqual(0);
    expect((await pause(id)).body).not.toHaveProperty("timing");
  });
});

describe("a resume", () => {
  test("gives the session a machine that continues from the saved state", async () => {
    const id = await createPaused({ size: "medium", no_sudo: true });
    const saved = await snapshotOf(id);
    const { status, body } = await resume(id);
    expect([status, body.state]).toEqual([200, "live"]);
    for (const field of ["paused_at", "snapshot_tier", "archive", "wake_at"]) {
      expect(body).not.toHaveProperty(field);
    }
    expect(Date.parse(body.resumed_at)).toBeGreaterThanOrEqual(Date.parse(body.created_at));
    expect(body.active_since).toBe(body.resumed_at);
    await eventually(() => expect(machinesOf(id)).toEqual([`${id}-2`]));
    expect(control.node.machines.get(`${id}-2`)?.spec).toEqual({
      network: { generation: 2, egress: { mode: "allow", allow: [] }, exposed: [] },
      template: "base",
      size: "medium",
      hostname: id,
      no_sudo: true,
      snapshot_id: saved,
      resume: true,
    });
    expect((await control.exec(id)).status).toBe(200);
    expect(control.node.execs.at(-1)?.machineId).toBe(`${id}-2`);
  });

  test("keeps the saved state until the next pause has replaced it", async () => {
    const id = await createPaused();
    const first = await snapshotOf(id);
    for (let cycle = 0; cycle < 3; cycle++) {
      const before = await snapshotOf(id);
      await resume(id);
      expect(control.node.snapshots.has(before)).toBe(true);
      await pause(id);
      await eventually(() => expect(control.node.snapshots.has(before)).toBe(false));
    }
    expect([...control.node.snapshots.keys()]).toEqual([await snapshotOf(id)]);
    expect(await snapshotOf(id)).not.toBe(first);
    await resume(id);
    await eventually(() => expect(machinesOf(id)).toEqual([`${id}-5`]));
  });

  test("of a live session changes nothing; of a session in creation it waits", async () => {
    const held = holdStarts();
    const id = await control.create();
    const answer = resume(id);
    await held.reached;
    held.open();
    expect((await answer).body.state).toBe("live");
    const again = await resume(id);
    expect([again.status, again.body.state, machinesOf(id)]).toEqual([200, "live", [`${id}-1`]]);
  });

  test("that is requested many times at once makes one machine", async () => {
    const id = await createPaused();
    let starts = 0;
    control.node.onStart = () => {
      starts += 1;
    };
    const answers = await Promise.all(Array.from({ length: 8 }, () => resume(id)));
    expect(answers.map(({ status, body }) => [status, body.state])).toEqual(Array(8).fill([200, "live"]));
    await eventually(() => expect([starts, machinesOf(id)]).toEqual([1, [`${id}-2`]]));
  });

  test.each([
    ["disk_pressure", 503, "node_disk_pressure", "30"],
    ["no_capacity", 503, "unavailable", "5"],
    ["snapshot_damaged", 500, "internal", undefined],
    ["agent_unavailable", 503, "session_unavailable", "2"],
  ] as const)(
    "that the node refuses with %s is %i, and the session stays paused",
    async (code, ...expected) => {
      const id = await createPaused();
      control.node.onStart = () => {
        throw new Refusal(code, "/secret/path");
      };
      const answer = await resume(id);
      expect(outcome(answer)).toEqual(expected);
      expect(answer.body.error).not.toContain("secret");
      expect(outcome(await control.exec(id))).toEqual(expected);
      expect([(await read(id)).state, await operationOf(id)]).toEqual(["paused", null]);
      expect((await control.ask("GET /v1/org")).body.capacity.running).toBe(0);
      control.node.onStart = () => {};
      expect((await resume(id)).body.state).toBe("live");
    },
  );

  test("to a host with another CPU is a conflict that names both, and the session stays paused", async () => {
    const id = await createPaused();
    const why =
      "the saved state does not continue on this host: it was made with KVM and the CPU of its host, A; this host's CPU is B";
    control.node.onStart = () => {
      throw new Refusal("snapshot_unfit", why);
    };
    const answer = await resume(id);
    expect([...outcome(answer), answer.body.error]).toEqual([409, "conflict", undefined, why]);
    expect((await read(id)).state).toBe("paused");
    control.node.onStart = () => {};
    expect((await resume(id)).body.state).toBe("live");
  });

  test("whose guest does not come back is a conflict without Retry-After", async () => {
    const id = await createPaused();
    control.node.onStart = () => {
      throw new Refusal("guest_unfit", "its agent is silent");
    };
    for (const answer of [await resume(id), await control.exec(id)]) {
      expect(outcome(answer)).toEqual([409, "conflict", undefined]);
      expect(answer.body.error).toBe(
        "the session's guest does not come back, and the session stays paused: its agent is silent; resume it once more, and if it stays so restore it to a checkpoint or destroy it",
      );
    }
    expect([(await read(id)).state, await operationOf(id)]).toEqual(["paused", null]);
  });

  test("over the organisation's ceiling is 429 and the session stays paused; a wake in flight counts", async () => {
    const id = await createPaused();
    const other = await createPaused();
    for (let n = 0; n < 9; n++) await control.createLive();
    const held = holdStarts();
    const first = resume(other);
    await held.reached;
    expect(outcome(await resume(id))).toEqual([429, "account_concurrency_exceeded", "5"]);
    expect(outcome(await control.exec(id))).toEqual([429, "account_concurrency_exceeded", "5"]);
    expect(outcome(await control.ask("POST /v1/sessions"))).toEqual([
      429,
      "account_concurrency_exceeded",
      "5",
    ]);
    held.open();
    expect((await first).status).toBe(200);
    expect((await read(id)).state).toBe("paused");
  });

  test("over the ceiling of the key that made the session is 429", async () => {
    const { rows } = await control.sql.query("select org_id from api_keys order by created_at limit 1");
    const key = await control.addKey({ orgId: rows[0].org_id, ceiling: 1 });
    const id = await control.createLive({}, key);
    await pause(id);
    await control.createLive({}, key);
    const refused = await resume(id);
    expect(outcome(refused)).toEqual([429, "key_concurrency_exceeded", "5"]);
    expect(refused.body.error).toMatch(
      /^a session counts under the API key that made it, whoever wakes it: that key may/,
    );
  });

  test("answers its timing on request", async () => {
    const id = await createPaused();
    const { body } = await resume(id, "?timing=true");
    expect(body.timing).toMatchObject({ queue: 1, disk: 2, load: 3, handshake: 4 });
    expect(body.timing.total).toBeGreaterThanOrEqual(0);
  });
});

describe("pause and resume on one session are serialised", () => {
  test("a resume during a pause wakes what the pause saved", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    const paused = pause(id);
    await held.reached;
    const woken = resume(id);
    held.open();
    expect((await paused).body.state).toBe("paused");
    expect((await woken).body.state).toBe("live");
    expect((await read(id)).state).toBe("live");
  });

  test("a pause during a wake pauses what woke", async () => {
    const id = await createPaused();
    const held = holdStarts();
    const woken = resume(id);
    await held.reached;
    const paused = pause(id);
    held.open();
    expect((await woken).body.state).toBe("live");
    expect((await paused).body.state).toBe("paused");
    await eventually(() => expect(machinesOf(id)).toEqual([]));
  });
});

describe("a guest operation", () => {
  test("wakes a paused session, and says how long that took", async () => {
    const id = await createPaused();
    const { status, body } = await control.exec(id);
    expect(status).toBe(200);
    expect(body.restore_ms).toBeGreaterThanOrEqual(0);
    expect((await read(id)).state).toBe("live");
    expect((await control.exec(id)).body).not.toHaveProperty("restore_ms");
  });

  test("answers the timing of its wake on request, and none if it woke nothing", async () => {
    const id = await createPaused();
    const timed = () =>
      control.ask(`POST /v1/sessions/${id}/exec?timing=true`, { body: { command: ["true"] } });
    expect((await timed()).body.timing).toMatchObject({ queue: 1, disk: 2, load: 3, handshake: 4 });
    expect((await timed()).body).not.toHaveProperty("timing");
  });

  test("shares one wake with all simultaneous operations, batch and stream among them", async () => {
    const id = await createPaused();
    let starts = 0;
    control.node.onStart = () => {
      starts += 1;
    };
    const [one, stream, batch] = await Promise.all([
      control.exec(id),
      control.ask(`POST /v1/sessions/${id}/exec?stream=true`, { body: { command: ["true"] } }),
      control.ask("POST /v1/sessions/batch/exec", { body: { session_ids: [id], command: ["true"] } }),
    ]);
    expect([one.status, stream.status, batch.body.results[0].exit_code]).toEqual([200, 200, 0]);
    expect(batch.body.results[0].restore_ms).toBeGreaterThanOrEqual(0);
    expect(stream.text).toContain("event: exit");
    expect(starts).toBe(1);
  });

  test("that comes during the capture waits, and then wakes the session", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    const paused = pause(id);
    await held.reached;
    const ran = control.exec(id);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(control.node.execs.filter(({ machineId }) => machineId.startsWith(id))).toEqual([]);
    held.open();
    expect((await paused).status).toBe(200);
    const { status, body } = await ran;
    expect([status, body.exit_code]).toEqual([200, 0]);
    expect(body.restore_ms).toBeGreaterThanOrEqual(0);
  });

  test("that finds the machine stopped is started once the session is ready", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    let starts = 0;
    control.node.onExec = async (_call, output) => {
      starts += 1;
      if (starts === 1) {
        // Race: the pause comes between the read of the row and the start of the command.
        void pause(id);
        await held.reached;
        held.open();
        throw new Refusal("machine_held");
      }
      output().exit();
    };
    expect((await control.exec(id)).body.exit_code).toBe(0);
    expect(starts).toBe(2);
  });

  /** A command that runs until its machine is stopped. */
  function runForever(): Promise<Output> {
    const { promise, resolve } = Promise.withResolvers<Output>();
    control.node.onExec = (_call, output) => {
      resolve(output());
    };
    return promise;
  }

  test("in flight when its session is paused is 409, and is not repeated", async () => {
    const id = await control.createLive();
    const running = runForever();
    const answer = control.exec(id);
    await running;
    expect((await pause(id)).status).toBe(200);
    const { status, body, headers } = await answer;
    expect([status, body.code, headers["retry-after"]]).toEqual([409, "conflict", undefined]);
    expect(body.error).toMatch(/paused while the command ran; the command goes on after the wake/);
  });

  test("that streams when its session is paused ends with an error event", async () => {
    const id = await control.createLive();
    const running = runForever();
    const answer = control.ask(`POST /v1/sessions/${id}/exec?stream=true`, { body: { command: ["x"] } });
    (await running).stdout("so far");
    expect((await pause(id)).status).toBe(200);
    const { text } = await answer;
    expect(text).toContain(Buffer.from("so far").toString("base64"));
    expect(text).toMatch(/event: error\ndata: the session was paused while the command ran[^\n]*\n\n$/);
  });

  test("in flight when its session is destroyed during the capture is 410", async () => {
    const id = await control.createLive();
    const running = runForever();
    const answer = control.exec(id);
    await running;
    const held = holdCaptures();
    const paused = pause(id);
    await held.reached;
    await destroy(id);
    held.open();
    expect(outcome(await answer)).toEqual([410, "session_ended", undefined]);
    expect(outcome(await paused)).toEqual([410, "session_ended", undefined]);
  });

  test.each(["", "?stream=true"])(
    "that its session's pause interrupts does not complete destroy_on_completion (%s)",
    async (query) => {
      const id = await control.createLive({ destroy_on_completion: true });
      const running = runForever();
      const answer = control.ask(`POST /v1/sessions/${id}/exec${query}`, { body: { command: ["x"] } });
      await running;
      await pause(id);
      await answer;
      // The rest of its time is kept for the wake (exec/command-lease.test.ts).
      const { rows } = await control.sql.query("select command_left_ms from sessions where id = $1", [id]);
      expect(Number(rows[0].command_left_ms)).toBeGreaterThan(0);
      expect((await read(id)).state).toBe("paused");
      control.node.onExec = (_call, output) => output().exit();
      expect((await control.exec(id)).status).toBe(200);
      await eventually(async () => expect((await control.ask(`GET /v1/sessions/${id}`)).status).toBe(404));
    },
  );
});

describe("a destroy", () => {
  test("of a paused session deletes its saved state", async () => {
    const id = await createPaused();
    expect((await destroy(id)).status).toBe(204);
    await eventually(() => expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]));
    expect(outcome(await resume(id))).toEqual([404, "not_found", undefined]);
    expect(outcome(await pause(id))).toEqual([404, "not_found", undefined]);
  });

  test("of a live session deletes its previous saved state as well", async () => {
    const id = await createPaused();
    await resume(id);
    expect((await destroy(id)).status).toBe(204);
    await eventually(() => expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]));
  });

  test("interrupts a pause, which leaves nothing", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    const paused = pause(id);
    await held.reached;
    expect((await destroy(id)).status).toBe(204);
    held.open();
    expect(outcome(await paused)).toEqual([410, "session_ended", undefined]);
    await eventually(() => expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]));
  });

  test("ends the requests that wait for a pause: verbs and guest operations", async () => {
    const id = await control.createLive();
    const held = holdCaptures();
    const paused = pause(id);
    await held.reached;
    const waiting = [
      control.ask(`POST /v1/sessions/${id}/fork`),
      control.ask(`POST /v1/sessions/${id}/checkpoints`),
      resume(id),
      control.exec(id),
    ];
    await foundBusy();
    expect((await destroy(id)).status).toBe(204);
    held.open();
    for (const answer of [paused, ...waiting])
      expect(outcome(await answer)).toEqual([410, "session_ended", undefined]);
  });

  test("interrupts a wake, which leaves nothing", async () => {
    const id = await createPaused();
    const held = holdStarts();
    const woken = resume(id);
    await held.reached;
    expect((await destroy(id)).status).toBe(204);
    held.open();
    expect(outcome(await woken)).toEqual([410, "session_ended", undefined]);
    await eventually(() => expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]));
  });

  test.each([
    ["pause", () => control.createLive(), "machine_not_found"],
    ["resume", () => createPaused(), "snapshot_not_found"],
  ] as const)("by another process is the reason why the node has nothing to %s", async (verb, make, code) => {
    const id = await make();
    const other = await createApp(control.settings, silentLog);
    const afterTheEnd = async () => {
      const headers = { authorization: `Bearer ${control.key}` };
      const answer = await other.server.inject({ method: "DELETE", url: `/v1/sessions/${id}`, headers });
      expect(answer.statusCode).toBe(204);
      throw new Refusal(code);
    };
    control.node.onSnapshot = afterTheEnd;
    control.node.onStart = afterTheEnd;
    expect(outcome(await control.ask(`POST /v1/sessions/${id}/${verb}`))).toEqual([
      410,
      "session_ended",
      undefined,
    ]);
    await other.close();
    await eventually(() => expect([control.node.snapshots.size, machinesOf(id)]).toEqual([0, []]));
  });

  test("that cannot reach the node is completed later", async () => {
    const id = await createPaused();
    await control.node.goDown();
    expect((await destroy(id)).status).toBe(204);
    expect(control.node.snapshots.size).toBe(1);
    await control.node.listen();
    await eventually(() => expect(control.node.snapshots.size).toBe(0));
  });
});

test("a session of another organisation is not found", async () => {
  const id = await createPaused();
  const key = await control.addKey();
  for (const verb of ["pause", "resume"]) {
    const answer = await control.ask(`POST /v1/sessions/${id}/${verb}`, { key });
    expect(outcome(answer)).toEqual([404, "not_found", undefined]);
  }
  expect((await read(id)).state).toBe("paused");
});

test("a session's record says how its machine runs, and how it will run when it is woken", async () => {
  control.node.isolation = "kvm";
  const id = await control.createLive();
  expect((await read(id)).isolation).toBe("kvm");
  await pause(id);
  expect((await read(id)).isolation).toBe("kvm");
  control.node.isolation = "emulated";
  await resume(id);
  expect((await read(id)).isolation).toBe("emulated");
  control.node.isolation = undefined;
  const other = await control.createLive();
  expect(await read(other)).not.toHaveProperty("isolation");
  // As by a node of an earlier version, which is updated.
  Object.assign(control.node.machines.get(`${other}-1`) ?? {}, { isolation: "emulated" });
  await eventually(async () => expect((await read(other)).isolation).toBe("emulated"));
  await destroy(id);
  expect(await read(id)).not.toHaveProperty("isolation");
});
