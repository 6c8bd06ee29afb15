/**
 * The transition table, row by row. Each test has the name of its row, and walks it through a running control plane.
 * Rows whose trigger does not exist in this version are tested by `decide` alone.
 */
import { type EndReason, type SessionEvent, type SessionState, TRANSITIONS } from "@vivarium/contract/api";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { decide, FIRST_STATE } from "./state.ts";

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterEach(async () => {
  control.node.onStart = () => {};
  control.node.onSnapshot = () => {};
  await control.destroyAll();
});
afterAll(() => control.close());

const call = (id: string, verb: string, body?: object): Promise<Answer> =>
  control.ask(`POST /v1/sessions/${id}/${verb}`, { body });
const destroy = (id: string, query = "") => control.ask(`DELETE /v1/sessions/${id}${query}`);
const outcome = (answer: Answer) => [answer.status, answer.body.code];

async function stateOf(id: string): Promise<[SessionState, EndReason | null]> {
  const { rows } = await control.sql.query("select state, end_reason from sessions where id = $1", [id]);
  return [rows[0].state, rows[0].end_reason];
}

const untilState = (id: string, ...expected: [SessionState, EndReason | null]) =>
  eventually(async () => expect(await stateOf(id)).toEqual(expected));

/** A destroyed session leaves a history row, and nothing on the node. */
async function expectHistory(id: string, reason: EndReason): Promise<void> {
  await untilState(id, "destroyed", reason);
  expect(outcome(await control.ask(`GET /v1/sessions/${id}`))).toEqual([404, "not_found"]);
  const { body } = await control.ask("GET /v1/sessions?state=ended&limit=500");
  const row = body.sessions.find((one: { session_id: string }) => one.session_id === id);
  expect(row).toMatchObject({ state: "ended", end_reason: reason, ended_at: expect.any(String) });
  await eventually(() => {
    expect([...control.node.machines.keys()].filter((name) => name.startsWith(id))).toEqual([]);
    expect(control.node.snapshots.size).toBe(0);
  });
}

/** Makes a session that has reached the state by real events. */
const IN: Record<Exclude<SessionState, "destroyed">, (body?: object) => Promise<string>> = {
  creating: async (body) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    continueStarts = resolve;
    return await control.create(body);
  },
  live: (body) => control.createLive(body),
  paused: async (body) => {
    const id = await control.createLive(body);
    expect((await call(id, "pause")).status).toBe(200);
    return id;
  },
  lifetime_expired: async (body) => {
    const id = await control.createLive({ max_lifetime_ms: HOUR, ...body });
    await clock.advance(HOUR);
    await untilState(id, "lifetime_expired", null);
    return id;
  },
  failed: async (body) => {
    control.node.onStart = () => {
      throw new Refusal("internal");
    };
    const id = await control.create(body);
    await untilState(id, "failed", null);
    return id;
  },
  // No event makes a node lost in this version, so the row is written directly.
  node_lost: async (body) => {
    const id = await IN.paused(body);
    await control.sql.query("update sessions set state = 'node_lost', due_at = null where id = $1", [id]);
    return id;
  },
};
let continueStarts = () => {};

interface Row {
  /** from | trigger | condition | to */
  title: string;
  moves: [from: SessionState | null, event: SessionEvent, to: SessionState, endReason?: EndReason][];
  walk?: () => Promise<void>;
}

const ANY = ["creating", "live", "paused", "lifetime_expired", "failed", "node_lost"] as const;

const ROWS: Row[] = [
  {
    title: "(none) | create | accepted | creating",
    moves: [[null, "create", "creating"]],
    walk: async () => {
      const id = await IN.creating();
      expect(await stateOf(id)).toEqual(["creating", null]);
      expect((await control.ask(`GET /v1/sessions/${id}`)).body.status_detail).toBe("starting");
    },
  },
  {
    title: "creating | provisioning completes | success | live",
    moves: [["creating", "provisioned", "live"]],
    walk: async () => {
      const id = await IN.creating();
      continueStarts();
      await untilState(id, "live", null);
    },
  },
  {
    title: "creating | provisioning fails | | failed",
    moves: [["creating", "provision_failed", "failed"]],
    walk: async () => {
      const id = await IN.failed();
      expect((await control.ask(`GET /v1/sessions/${id}`)).body.status_reason).toMatch(/could not start/);
    },
  },
  {
    title: "live | POST pause | | paused, with a wake_at that schedules a return",
    moves: [["live", "pause", "paused"]],
    walk: async () => {
      const id = await IN.live();
      const wakeAt = await clock.at(HOUR);
      const { status, body } = await call(id, "pause", { wake_at: wakeAt });
      expect([status, body.state, body.wake_at]).toEqual([200, "paused", wakeAt]);
      await clock.advance(HOUR);
      await untilState(id, "live", null);
    },
  },
  {
    title: "live | last PTY client detaches | on_pty_detach is pause | paused",
    moves: [["live", "last_pty_detached_pause", "paused"]],
  },
  {
    title: "live | last PTY client detaches | on_pty_detach is destroy | destroyed",
    moves: [["live", "last_pty_detached_destroy", "destroyed", "on_detach_destroy"]],
  },
  {
    title: "live | last PTY client detaches | on_pty_detach is keep_live | live",
    moves: [["live", "last_pty_detached_keep_live", "live"]],
  },
  {
    title: "live | idle_timeout_ms of inactivity | no PTY client attached | paused, resumable",
    moves: [["live", "idle_timeout", "paused"]],
    walk: async () => {
      const id = await IN.live({ idle_timeout_ms: HOUR });
      await clock.advance(HOUR + 5000);
      await untilState(id, "paused", null);
      expect((await call(id, "resume")).body.state).toBe("live");
    },
  },
  {
    title: "live | continuous live time reaches 24 hours | always | paused",
    moves: [["live", "continuous_live_limit", "paused"]],
    walk: async () => {
      const id = await IN.live();
      await clock.advance(DAY);
      await untilState(id, "paused", null);
    },
  },
  {
    title: "live or paused | max_lifetime_ms elapsed | first priority | paused permanently",
    moves: [
      ["live", "max_lifetime", "lifetime_expired"],
      ["paused", "max_lifetime", "lifetime_expired"],
    ],
    walk: async () => {
      for (const from of ["live", "paused"] as const) {
        const id = await IN[from]({ max_lifetime_ms: HOUR });
        await clock.advance(HOUR);
        await untilState(id, "lifetime_expired", null);
        expect(outcome(await call(id, "resume"))).toEqual([410, "session_ended"]);
        expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("lifetime_expired");
      }
    },
  },
  {
    title: "live | max_lifetime_ms elapsed | the pause itself fails | destroyed",
    moves: [["live", "max_lifetime_pause_failed", "destroyed", "max_lifetime"]],
    walk: async () => {
      const id = await IN.live({ max_lifetime_ms: HOUR });
      control.node.onSnapshot = () => {
        throw new Refusal("capture_failed");
      };
      await clock.advance(HOUR);
      await expectHistory(id, "max_lifetime");
    },
  },
  {
    title: "paused | POST resume | not permanently paused | live",
    moves: [["paused", "resume", "live"]],
    walk: async () => {
      const id = await IN.paused();
      expect((await call(id, "resume")).body.state).toBe("live");
      expect(await stateOf(id)).toEqual(["live", null]);
    },
  },
  {
    title: "paused | exec, files, pty, expose call | not permanently paused | live",
    moves: [["paused", "operation_wake", "live"]],
    walk: async () => {
      const id = await IN.paused();
      expect((await control.exec(id)).status).toBe(200);
      expect(await stateOf(id)).toEqual(["live", null]);
    },
  },
  { title: "paused | attach via SSH | | live", moves: [["paused", "tunnel_attach", "live"]] },
  {
    title: "paused | wake_at reached | session still paused | live, a no-op if already resumed",
    moves: [
      ["paused", "wake_at_reached", "live"],
      ["live", "wake_at_reached", "live"],
    ],
    walk: async () => {
      const [still, resumed] = [await IN.live(), await IN.live()];
      for (const id of [still, resumed]) await call(id, "pause", { wake_at: await clock.at(HOUR) });
      await call(resumed, "resume");
      await clock.advance(HOUR);
      await untilState(still, "live", null);
      expect(await stateOf(resumed)).toEqual(["live", null]);
      await eventually(() =>
        expect([...control.node.machines.keys()].sort()).toEqual([`${still}-2`, `${resumed}-2`].sort()),
      );
    },
  },
  {
    title: "paused | paused_ttl_ms exceeded | | destroyed, which bounds permanently paused sessions too",
    moves: [
      ["paused", "paused_ttl_exceeded", "destroyed", "paused_ttl"],
      ["lifetime_expired", "paused_ttl_exceeded", "destroyed", "paused_ttl"],
    ],
    walk: async () => {
      for (const from of ["paused", "lifetime_expired"] as const) {
        const id = await IN[from]({ paused_ttl_ms: DAY });
        await clock.advance(DAY);
        await expectHistory(id, "paused_ttl");
      }
    },
  },
  {
    title: "lifetime_expired | any resume attempt | | unchanged, 410",
    moves: [],
    walk: async () => {
      const id = await IN.lifetime_expired();
      const calls = [
        call(id, "resume"),
        call(id, "pause"),
        control.exec(id),
        call(id, "fork"),
        call(id, "checkpoints"),
        call(id, "templates", { name: "t" }),
      ];
      for (const answer of await Promise.all(calls)) expect(outcome(answer)).toEqual([410, "session_ended"]);
      expect(await stateOf(id)).toEqual(["lifetime_expired", null]);
    },
  },
  ...ANY.map((from) => ({
    title: `any (${from}) | DELETE | | destroyed, end_reason client_destroy or shell_exit`,
    moves: [[from, "destroy", "destroyed", "client_destroy"]] as Row["moves"],
    walk: async () => {
      const id = await IN[from]();
      expect((await destroy(id)).status).toBe(204);
      await expectHistory(id, "client_destroy");
      const exited = await IN[from]();
      expect((await destroy(exited, "?reason=shell_exit")).status).toBe(204);
      await expectHistory(exited, "shell_exit");
    },
  })),
  {
    title: "any | first exec completes | destroy_on_completion true | destroyed",
    moves: ANY.map((from) => [from, "first_exec_completed", "destroyed", "client_destroy"]),
    walk: async () => {
      for (const from of ["live", "paused"] as const) {
        const id = await IN[from]({ destroy_on_completion: true });
        expect((await control.exec(id)).status).toBe(200);
        await expectHistory(id, "client_destroy");
      }
    },
  },
  {
    title: "node_lost | POST recover | completed cold snapshot exists | live",
    moves: [["node_lost", "recover", "live"]],
  },
  {
    title: "node_lost | DELETE | | destroyed, without a node",
    moves: [["node_lost", "destroy", "destroyed", "client_destroy"]],
    walk: async () => {
      const id = await IN.node_lost();
      await control.node.goDown();
      expect((await destroy(id)).status).toBe(204);
      await untilState(id, "destroyed", "client_destroy");
      await control.node.listen();
      await expectHistory(id, "client_destroy");
    },
  },
  {
    title: "node_lost | any other operation | | unchanged, 410 session_node_lost",
    moves: [],
    walk: async () => {
      const id = await IN.node_lost();
      for (const answer of [await call(id, "resume"), await call(id, "pause"), await control.exec(id)]) {
        expect(outcome(answer)).toEqual([410, "session_node_lost"]);
      }
      expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("node_lost");
    },
  },
  {
    title: "live | POST restore | checkpoint given | live, same id",
    moves: [["live", "restore", "live"]],
    walk: async () => {
      const id = await IN.live();
      const { body } = await call(id, "checkpoints");
      const restored = await call(id, "restore", { checkpoint_id: body.checkpoint_id });
      expect([restored.status, restored.body.session_id, restored.body.state]).toEqual([200, id, "live"]);
      expect([...control.node.machines.keys()]).toEqual([`${id}-2`]);
      await control.ask(`DELETE /v1/checkpoints/${body.checkpoint_id}`);
    },
  },
  {
    title: "decided: paused | POST pause | | paused; live | POST resume | | live",
    moves: [
      ["paused", "pause", "paused"],
      ["live", "resume", "live"],
    ],
    walk: async () => {
      const id = await IN.live();
      expect((await call(id, "resume")).body.state).toBe("live");
      await call(id, "pause");
      expect((await call(id, "pause")).body.state).toBe("paused");
    },
  },
  {
    title: "decided: paused | POST restore | checkpoint given | live",
    moves: [["paused", "restore", "live"]],
    walk: async () => {
      const id = await IN.paused();
      const { body } = await call(id, "checkpoints");
      expect((await call(id, "restore", { checkpoint_id: body.checkpoint_id })).body.state).toBe("live");
      await control.ask(`DELETE /v1/checkpoints/${body.checkpoint_id}`);
    },
  },
  {
    title: "decided: live | the host shuts down in order | | paused",
    // upkeep/pause-all.test.ts has its walk: it closes the service.
    moves: [["live", "host_shutdown", "paused"]],
  },
  {
    title: "decided: live | the machine is lost | | failed",
    moves: [["live", "machine_lost", "failed"]],
    walk: async () => {
      const id = await IN.live();
      control.node.machines.delete(`${id}-1`);
      await untilState(id, "failed", null);
    },
  },
  {
    title: "decided: creating, live or paused | its node has a later machine | | live",
    moves: [
      ["creating", "machine_found", "live"],
      ["live", "machine_found", "live"],
      ["paused", "machine_found", "live"],
    ],
  },
  {
    title: "decided: creating, live or paused | its node has a later saved state | | paused",
    moves: [
      ["creating", "saved_state_found", "paused"],
      ["live", "saved_state_found", "paused"],
      ["paused", "saved_state_found", "paused"],
    ],
  },
  {
    title: "decided: failed | a day goes by | | destroyed, end_reason error",
    moves: [["failed", "failed_expired", "destroyed", "error"]],
    walk: async () => {
      const id = await IN.failed();
      await clock.advance(DAY);
      await expectHistory(id, "error");
    },
  },
  {
    title: "decided: live or paused | its node is declared lost | | node_lost",
    moves: [
      ["live", "node_declared_lost", "node_lost"],
      ["paused", "node_declared_lost", "node_lost"],
    ],
  },
];

describe.each(ROWS)("$title", ({ moves, walk }) => {
  test.runIf(moves.length > 0)("matches decide()", () => {
    for (const [from, event, to, endReason] of moves) {
      if (from === null) expect(FIRST_STATE).toBe(to);
      else expect(decide({ state: from, incarnation: 1 }, event)).toMatchObject({ state: to, endReason });
    }
  });

  test.runIf(walk)("happens in a running control plane", async () => {
    await walk?.();
  });
});

test("exactly the rows of the transition table are tested here", () => {
  const named = new Set(ROWS.flatMap(({ moves }) => moves.map(([from, event]) => `${from} ${event}`)));
  const known = new Set(TRANSITIONS.map(({ from, event }) => `${from} ${event}`));
  expect(named).toEqual(known);
});
