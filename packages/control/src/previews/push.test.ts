import type { PreviewTable } from "@vivarium/contract/node";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { TestClock } from "../../test-support/test-clock.ts";
import { createApp } from "../app.ts";
import { openDatabase } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { SessionSignals } from "../sessions/signals.ts";
import { PreviewPush } from "./push.ts";

let control: Control;
let clock: TestClock;
beforeAll(async () => {
  control = await startControl();
  clock = await TestClock.install(control.sql);
});
afterAll(() => control.close());
beforeEach(() => {
  control.node.onPreviews = () => {};
});
afterEach(() => control.destroyAll());

const expose = (id: string, body: object = {}) =>
  control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 3000, ...body } });
const stateOf = (id: string) => control.node.previews.routes.find((route) => route.session_id === id)?.state;
const untilState = (id: string, state: string | undefined) =>
  eventually(() => expect(stateOf(id)).toBe(state));

async function exposed(settings: object = {}): Promise<string> {
  const id = await control.createLive(settings);
  await expose(id);
  expect(stateOf(id)).toBe("live");
  return id;
}

test("pause and resume move the route with the session", async () => {
  const id = await exposed();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await untilState(id, "paused");
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await untilState(id, "live");
});

test("a session whose machine is lost can never be woken", async () => {
  const id = await exposed();
  control.node.machines.delete(`${id}-1`);
  await untilState(id, "gone");
});

test("a session whose lifetime is over can never be woken", async () => {
  const id = await exposed({ max_lifetime_ms: 3_600_000 });
  await clock.advance(3_600_001);
  await untilState(id, "gone");
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.state).toBe("lifetime_expired");
});

test("routes and their credentials die with the session", async () => {
  const id = await exposed();
  await control.ask(`DELETE /v1/sessions/${id}`);
  await untilState(id, undefined);
  await eventually(async () => {
    const { rowCount } = await control.sql.query("select from preview_routes where session_id = $1", [id]);
    expect(rowCount).toBe(0);
  });
});

test("wake_on_http reaches the gateway", async () => {
  const id = await exposed();
  await control.ask(`PATCH /v1/sessions/${id}`, { body: { egress_cap_bytes: 0, wake_on_http: false } });
  await eventually(() =>
    expect(control.node.previews.routes.find((route) => route.session_id === id)?.wake_on_http).toBe(false),
  );
});

test("a node that restarted gets all routes again", async () => {
  const id = await exposed();
  const { version } = control.node.previews;
  control.node.forgetPreviews();
  await untilState(id, "live");
  expect(control.node.previews.version).toBeGreaterThan(version);
});

test("a node that knows a later table is overtaken", async () => {
  const id = await exposed();
  const { version } = control.node.previews;
  control.node.previews = { version: version + 1000, routes: [] };
  expect((await expose(id, { rotate: true })).status).toBe(200);
  expect(control.node.previews.version).toBeGreaterThan(version + 1000);
  expect(stateOf(id)).toBe("live");
});

test("a node that loses its routes while they are compared gets them again", async () => {
  // No other process sends a table.
  const own = await startControl({ sweeps: false });
  await own.ask(`POST /v1/sessions/${await own.createLive()}/expose`, { body: { port: 3000 } });
  const db = openDatabase({ url: own.settings.databaseUrl, log: silentLog });
  const sent: number[] = [];
  const asked = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  const nodes = {
    info: async () => {
      asked.resolve();
      await answered.promise;
      return { previews_version: 0 };
    },
    putPreviews: async ({ version }: PreviewTable) => void sent.push(version),
  } as unknown as NodeClient;
  const parts = { db, nodes, signals: new SessionSignals(), previewKey: Buffer.alloc(32), log: silentLog };
  const push = new PreviewPush(parts);
  await push.check();
  expect(sent).toHaveLength(1);
  const checked = push.check();
  await asked.promise;
  await own.sql.query("begin");
  await own.sql.query("lock table preview_routes in access exclusive mode");
  const ensured = push.ensure();
  await new Promise((resolve) => setTimeout(resolve, 300));
  answered.resolve();
  await new Promise((resolve) => setTimeout(resolve, 300));
  await own.sql.query("commit");
  await Promise.all([checked, ensured]);
  expect(sent).toHaveLength(2);
  await db.destroy();
  await own.close();
});

test("a table that the node could not confirm is sent again", async () => {
  const id = await exposed();
  let refusals = 0;
  control.node.onPreviews = () => {
    refusals += 1;
    if (refusals <= 3) throw new Refusal("network_unconfirmed");
  };
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await untilState(id, "paused");
  expect(refusals).toBe(4);
});

test("an unchanged table is not sent again", async () => {
  const id = await exposed();
  const { version } = control.node.previews;
  const other = await control.createLive();
  await control.ask(`POST /v1/sessions/${other}/pause`);
  await expose(id);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(control.node.previews.version).toBe(version);
});

test("concurrent changes are sent in few tables, and each is in force when its call answers", async () => {
  const id = await control.createLive();
  let tables = 0;
  control.node.onPreviews = () => {
    tables += 1;
  };
  const ports = Array.from({ length: 20 }, (_, index) => index + 1);
  await Promise.all(
    ports.map(async (port) => {
      expect((await expose(id, { port })).status).toBe(200);
      expect(control.node.previews.routes.map((route) => route.port)).toContain(port);
    }),
  );
  expect(tables).toBeLessThan(ports.length);
});

test("a route that another process sent is removed by a process that had sent the same rows before", async () => {
  const own = await startControl({ sweeps: false });
  const other = await createApp(own.settings, silentLog);
  const id = await own.createLive();
  const asked = { port: 3000 };
  await own.ask(`POST /v1/sessions/${id}/expose`, { body: asked });
  await own.ask(`POST /v1/sessions/${id}/unexpose`, { body: asked });
  const exposed = await other.server.inject({
    method: "POST",
    url: `/v1/sessions/${id}/expose`,
    headers: { authorization: `Bearer ${own.key}` },
    payload: JSON.stringify(asked),
  });
  expect(exposed.statusCode).toBe(200);
  expect(own.node.previews.routes).toHaveLength(1);
  expect((await own.ask(`POST /v1/sessions/${id}/unexpose`, { body: asked })).body).toEqual({ ok: true });
  expect(own.node.previews.routes).toEqual([]);
  await other.close();
  await own.close();
});
