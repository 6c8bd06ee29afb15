import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { readConfig } from "../config.ts";
import { openDatabase } from "../db/pool.ts";
import { listLiveOverCap } from "./org-cap-store.ts";

const MIB = 2 ** 20;
const DAY_MS = 86_400_000;
const CAPPED = { status: 409, body: { code: "egress_capped" } };

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
afterEach(() => forgetDay(control));

const put = (cap_bytes: unknown, key = control.key) =>
  control.ask("PUT /v1/org/egress-cap", { body: { cap_bytes }, key });
const read = async (key = control.key) => (await control.ask("GET /v1/org/egress-cap", { key })).body;
const stateOf = async (id: string, at = control) => (await at.ask(`GET /v1/sessions/${id}`)).body.state;

/** The kernel's counter for the session's first machine. */
function count(at: Control, id: string, egress_bytes: number): void {
  const counter = {
    machine_id: `${id}-1`,
    egress_bytes,
    ingress_bytes: 0,
    dropped_packets: 0,
    is_capped: false,
  };
  const others = at.node.report.counters.filter(({ machine_id }) => machine_id !== counter.machine_id);
  at.node.report = { ...at.node.report, counters: [...others, counter] };
}

/** Ends all sessions and deletes their usage. */
async function forgetDay(at: Control): Promise<void> {
  await at.sql.query("update orgs set egress_cap_bytes = null, egress_capped_on = null");
  await at.destroyAll();
  at.node.report = { ...at.node.report, counters: [] };
  await untilWritten(at);
  await at.sql.query("delete from egress_usage");
}

/** Reports are saved one after the other, so every report before this call is saved after it. */
async function untilWritten(at: Control): Promise<void> {
  const before = at.node.reportCount;
  await eventually(() => expect(at.node.reportCount).toBeGreaterThan(before));
}

async function sendAndReach(id: string, bytes: number): Promise<void> {
  count(control, id, bytes);
  await eventually(async () => expect((await read()).today_bytes).toBe(bytes));
}

const outcomeOf = (wakeId: string) =>
  eventually(() => {
    const outcome = control.node.wakeOutcomes.get(wakeId);
    if (!outcome) throw new Error(`nobody answered the wake ${wakeId}`);
    return outcome;
  });

/** A session that was paused because its organisation sent all it may. */
async function pausedByCap(): Promise<string> {
  const id = await control.createLive();
  await sendAndReach(id, 4 * MIB);
  await put(4 * MIB);
  await control.until(id, "paused");
  return id;
}

test("nothing is capped by default", async () => {
  const id = await control.createLive();
  await sendAndReach(id, 2 ** 40);
  expect(await read()).toEqual({
    cap_bytes: 0,
    override: false,
    default_cap_bytes: 0,
    today_bytes: 2 ** 40,
    date: (await clock.at()).slice(0, 10),
  });
  await control.createLive();
  expect(await stateOf(id)).toBe("live");
});

test("a cap is set, shown with its origin, and removed", async () => {
  expect((await put(MIB)).body).toMatchObject({ cap_bytes: MIB, override: true, default_cap_bytes: 0 });
  expect(await read()).toMatchObject({ cap_bytes: MIB, override: true });
  expect((await put(0)).body).toMatchObject({ cap_bytes: 0, override: true });
  expect((await put(null)).body).toMatchObject({ cap_bytes: 0, override: false });
});

test.each([[undefined], [-1], [1.5], ["1"], [2 ** 53], [true]])("%j is no cap", async (cap_bytes) => {
  await put(MIB);
  const answer = await put(cap_bytes);
  expect(answer).toMatchObject({ status: 400, body: { code: "validation" } });
  expect(answer.body.error).toMatch(/^cap_bytes: /);
  expect(await read()).toMatchObject({ cap_bytes: MIB });
});

test("live sessions are paused over the cap, and not below it", async () => {
  const ids = [await control.createLive(), await control.createLive()];
  await put(10 * MIB);
  for (const id of ids) count(control, id, 4 * MIB);
  await eventually(async () => expect((await read()).today_bytes).toBe(8 * MIB));
  expect(await Promise.all(ids.map((id) => stateOf(id)))).toEqual(["live", "live"]);
  count(control, ids[0] as string, 6 * MIB);
  for (const id of ids) await control.until(id, "paused");
});

test("a session over the cap that cannot be paused is tried again, but only every 10 s", async () => {
  const id = await control.createLive();
  let tries = 0;
  control.node.onSnapshot = () => {
    tries += 1;
    throw new Refusal("agent_unavailable");
  };
  const now = performance.now.bind(performance);
  let skipped = 0;
  const elapsed = vi.spyOn(performance, "now").mockImplementation(() => now() + skipped);
  try {
    await sendAndReach(id, MIB);
    await put(MIB);
    await eventually(() => expect(tries).toBe(1));
    // Reports of the node come with ticks that pass over the session.
    for (let tick = 0; tick < 5; tick++) await untilWritten(control);
    expect(tries).toBe(1);
    skipped = 10_000;
    await eventually(() => expect(tries).toBe(2));
  } finally {
    elapsed.mockRestore();
    control.node.onSnapshot = () => {};
  }
});

test("sessions that were tried do not take the places of those that were not", async () => {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const ids = [await control.createLive(), await control.createLive()];
  const tried = new Set<string>();
  control.node.onSnapshot = (snapshotId) => {
    tried.add(snapshotId);
    throw new Refusal("agent_unavailable");
  };
  try {
    await sendAndReach(ids[0] as string, MIB);
    await put(MIB);
    const list = (except: string[], limit: number) => listLiveOverCap(db, { except, limit });
    // Until both pauses have failed.
    await eventually(async () => {
      expect(tried.size).toBe(2);
      expect(await list([], 2)).toHaveLength(2);
    });
    for (const [first, second] of [ids, ids.toReversed()])
      expect((await list([first as string], 1)).map(({ id }) => id)).toEqual([second]);
  } finally {
    control.node.onSnapshot = () => {};
    await db.destroy();
  }
});

test("a cap that today's figure has reached already refuses as soon as it is set", async () => {
  const id = await control.createLive();
  await sendAndReach(id, 4 * MIB);
  await put(4 * MIB + 1);
  await control.create();
  await put(4 * MIB);
  expect(await control.ask("POST /v1/sessions")).toMatchObject(CAPPED);
});

test.each([
  ["create", () => control.ask("POST /v1/sessions")],
  ["stateless run", () => control.ask("POST /v1/sessions/exec", { body: { language: "python", code: "1" } })],
  ["resume", (id: string) => control.ask(`POST /v1/sessions/${id}/resume`)],
  ["wake by a command", (id: string) => control.exec(id)],
  ["wake by an expose", (id: string) => control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 1 } })],
  ["fork", (id: string) => control.ask(`POST /v1/sessions/${id}/fork`)],
])("over the cap a %s is refused, and the session stays as it is", async (_what, attempt) => {
  const id = await pausedByCap();
  expect(await attempt(id)).toMatchObject(CAPPED);
  expect(await stateOf(id)).toBe("paused");
  const { body } = await control.ask("GET /v1/sessions");
  expect(body.sessions).toHaveLength(1);
});

test("over the cap neither a checkpoint starts nor a paused session goes back to one", async () => {
  const id = await control.createLive();
  const { body } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  await sendAndReach(id, MIB);
  await put(MIB);
  await control.until(id, "paused");
  const { checkpoint_id } = body;
  expect(await control.ask(`POST /v1/checkpoints/${checkpoint_id}/sessions`)).toMatchObject(CAPPED);
  const restore = `POST /v1/sessions/${id}/restore`;
  expect(await control.ask(restore, { body: { checkpoint_id } })).toMatchObject(CAPPED);
  await put(0);
  expect((await control.ask(`POST /v1/checkpoints/${checkpoint_id}/sessions`)).status).toBe(200);
});

test("over the cap a visitor of a preview wakes nothing, and the answer is temporary", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 80 } });
  await sendAndReach(id, MIB);
  await put(MIB);
  await control.until(id, "paused");
  control.node.visit("over", id);
  expect(await outcomeOf("over")).toMatchObject({ result: "refused", status: 503 });
  expect(await stateOf(id)).toBe("paused");
  await put(null);
  control.node.visit("raised", id);
  expect(await outcomeOf("raised")).toEqual({ result: "live" });
});

test("a clock wakes nothing over the cap, and does once it is raised", async () => {
  const id = await pausedByCap();
  await control.ask(`POST /v1/sessions/${id}/pause`, { body: { wake_at: await clock.at(1_000) } });
  await clock.advance(2_000);
  await eventually(async () => {
    const found = await control.sql.query("select wake_retry_at from sessions where id = $1", [id]);
    expect(found.rows[0].wake_retry_at).not.toBeNull();
  });
  expect(await stateOf(id)).toBe("paused");
  await put(5 * MIB);
  await clock.advance(10_000);
  await control.until(id, "live");
});

test("a raised cap lets sessions run from then on", async () => {
  const id = await pausedByCap();
  expect((await control.exec(id)).body.code).toBe("egress_capped");
  expect((await put(5 * MIB)).body.cap_bytes).toBe(5 * MIB);
  expect((await control.exec(id)).status).toBe(200);
  await control.createLive();
});

test("a new day begins at nothing", async () => {
  const id = await pausedByCap();
  const now = Date.parse(await clock.at());
  await clock.advance(DAY_MS - (now % DAY_MS) + 50);
  expect(await read()).toMatchObject({ cap_bytes: 4 * MIB, today_bytes: 0 });
  expect((await control.exec(id)).status).toBe(200);
});

test("bytes of a destroyed session count for its day", async () => {
  const id = await control.createLive();
  await sendAndReach(id, 4 * MIB);
  await put(4 * MIB);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect(await read()).toMatchObject({ today_bytes: 4 * MIB });
  expect(await control.ask("POST /v1/sessions")).toMatchObject(CAPPED);
});

test("another organisation has a cap, a count and sessions of its own", async () => {
  const other = await control.addKey();
  await pausedByCap();
  const theirs = await control.createLive({}, other);
  expect(await read(other)).toMatchObject({ cap_bytes: 0, override: false, today_bytes: 0 });
  expect((await control.ask(`GET /v1/sessions/${theirs}`, { key: other })).body.state).toBe("live");
  await control.ask(`DELETE /v1/sessions/${theirs}`, { key: other });
});

test("a key of one project reads the cap and does not set it", async () => {
  const { body: me } = await control.ask("GET /v1/whoami");
  const projects = await control.sql.query("select id from projects where org_id = $1", [me.org_id]);
  const key = await control.addKey({ orgId: me.org_id, scopedProjectId: projects.rows[0].id });
  expect(await put(MIB, key)).toMatchObject({ status: 403, body: { code: "forbidden" } });
  expect(await read(key)).toMatchObject({ cap_bytes: 0, override: false });
  const whole = await control.addKey({ orgId: me.org_id });
  expect((await put(MIB, whole)).status).toBe(200);
});

test("the operator's default holds until an organisation chooses, and the bound always", async () => {
  const egressCaps = { sessionBytes: 0, orgBytes: 2 * MIB, orgMaxBytes: 3 * MIB };
  const bounded = await startControl({ egressCaps });
  const choose = (cap_bytes: number | null) => bounded.ask("PUT /v1/org/egress-cap", { body: { cap_bytes } });
  try {
    const expected = { cap_bytes: 2 * MIB, override: false, default_cap_bytes: 2 * MIB };
    expect((await bounded.ask("GET /v1/org/egress-cap")).body).toMatchObject(expected);
    for (const over of [0, 3 * MIB + 1]) {
      const { status, body } = await choose(over);
      expect([status, body.error]).toEqual([400, expect.stringMatching(/^cap_bytes: .*operator's bound/)]);
    }
    const id = await bounded.createLive();
    count(bounded, id, 2 * MIB);
    await bounded.until(id, "paused");
    expect((await choose(3 * MIB)).body).toMatchObject({ cap_bytes: 3 * MIB, override: true });
    expect((await bounded.exec(id)).status).toBe(200);
    expect((await choose(null)).body).toMatchObject(expected);
    expect((await bounded.ask("POST /v1/sessions")).body.code).toBe("egress_capped");
    // Chosen before the operator set a bound.
    await bounded.sql.query("update orgs set egress_cap_bytes = 0");
    expect((await bounded.ask("GET /v1/org/egress-cap")).body.cap_bytes).toBe(3 * MIB);
  } finally {
    await bounded.close();
  }
});

test("the operator may set default, bound and the cap of sessions in bytes", () => {
  const usual = { DATABASE_URL: "postgresql://x" };
  expect(readConfig(usual).egressCaps).toEqual({ sessionBytes: 0, orgBytes: 0, orgMaxBytes: 0 });
  const set = { VIV_SESSION_EGRESS_CAP_BYTES: "1", VIV_ORG_EGRESS_CAP_BYTES: "2" };
  expect(readConfig({ ...usual, ...set, VIV_ORG_EGRESS_CAP_MAX_BYTES: "3" }).egressCaps).toEqual({
    sessionBytes: 1,
    orgBytes: 2,
    orgMaxBytes: 3,
  });
  for (const wrong of ["10GiB", "-1", "1e9", ""]) {
    expect(() => readConfig({ ...usual, VIV_ORG_EGRESS_CAP_BYTES: wrong })).toThrow(
      "VIV_ORG_EGRESS_CAP_BYTES: must be a number of bytes",
    );
  }
});

test("a session whose create names no cap has the operator's, also from a checkpoint; 0 is no cap", async () => {
  const usual = await startControl({ egressCaps: { sessionBytes: 7 * MIB, orgBytes: 0, orgMaxBytes: 0 } });
  const capOf = async (id: string) =>
    (await usual.ask(`GET /v1/sessions/${id}/egress-cap`)).body.egress_cap_bytes;
  try {
    const id = await usual.createLive();
    expect(await capOf(id)).toBe(7 * MIB);
    expect(usual.node.networks.get(`${id}-1`)?.egress_limit_bytes).toBe(7 * MIB);
    expect(await capOf(await usual.createLive({ egress_cap_bytes: 0 }))).toBe(0);
    expect(await capOf(await usual.createLive({ egress_cap_bytes: 9 * MIB }))).toBe(9 * MIB);
    const { body } = await usual.ask(`POST /v1/sessions/${id}/checkpoints`);
    const started = await usual.ask(`POST /v1/checkpoints/${body.checkpoint_id}/sessions`);
    expect(await capOf(started.body.session_id)).toBe(7 * MIB);
  } finally {
    await usual.close();
  }
});
