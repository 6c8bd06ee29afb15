/** The database is away for longer than leases last: neither of two processes acts on the leases of the other. */
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { DatabaseLine } from "../../test-support/database-line.ts";
import { Client } from "../../test-support/terminal-client.ts";
import { type App, createApp } from "../app.ts";

/** Longer than the gap after which leases count as stale. */
const AWAY_MS = 5_000;
/** The first process runs several sweeps before the other one has its database back. */
const APART_MS = 2_000;
/** The other process has renewed all leases by then. The lease of a run takes up to ten seconds. */
const PATIENCE_MS = 40_000 * SLOWNESS;

let control: Control;
let lines: DatabaseLine[];
let first: App;
let other: App;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
  lines = [1, 2].map(() => new DatabaseLine(control.settings.databaseUrl));
  const apps = lines.map(async (line) => {
    await line.restore();
    return await createApp({ ...control.settings, databaseUrl: line.url }, silentLog);
  });
  [first, other] = (await Promise.all(apps)) as [App, App];
  for (const app of [first, other]) app.startSweeps();
});
afterAll(async () => {
  for (const app of [first, other]) await app.close();
  for (const line of lines) await line.close();
  await control.close();
});

const askOther = (url: string, body: object) =>
  other.server.inject({
    method: "POST",
    url,
    headers: { authorization: `Bearer ${control.key}` },
    payload: JSON.stringify(body),
  });
const rowOf = async (id: string) =>
  (await control.sql.query("select * from sessions where id = $1", [id])).rows[0];

test(
  "creates, operations, runs and terminals of the other process continue",
  async () => {
    const address = await other.server.listen({ host: "127.0.0.1", port: 0 });
    const attached = await control.createLive({ on_pty_detach: "destroy" });
    const url = `${address.replace("http", "ws")}/v1/sessions/${attached}/pty`;
    const client = await new Client(url, control.key).opened();
    const restored = await control.createLive();
    const { checkpoint_id: checkpointId } = (await control.ask(`POST /v1/sessions/${restored}/checkpoints`))
      .body;

    const over = Promise.withResolvers<void>();
    control.node.onExec = async (_call, output) => {
      const running = output();
      await over.promise;
      running.exit();
    };
    const run = askOther("/v1/sessions/exec", { language: "python", code: "x" });
    await eventually(() => expect(control.node.execs).toHaveLength(1));
    const runId = control.node.execs[0]?.machineId.split("-", 1)[0] ?? "";
    const loading = Promise.withResolvers<void>();
    const loaded = Promise.withResolvers<void>();
    let starts = 0;
    control.node.onStart = async () => {
      if (++starts === 2) loading.resolve();
      await loaded.promise;
    };
    const { session_id: made } = (await askOther("/v1/sessions", {})).json();
    const restore = askOther(`/v1/sessions/${restored}/restore`, { checkpoint_id: checkpointId });
    await loading.promise;
    control.node.onStart = () => {};
    const { op_id: operation } = await rowOf(restored);

    for (const line of lines) await line.sever();
    await new Promise((resolve) => setTimeout(resolve, AWAY_MS));
    // As if half a minute had passed.
    await control.sql.query(
      `with attached as (update attachments set lease_until = now() - interval '20 s'),
         runs as (update sessions set destroy_after = now() - interval '1 s' where origin = 'run')
       update sessions set due_at = service_now() where id = $1`,
      [attached],
    );
    const [lineOfFirst, lineOfOther] = lines;
    await lineOfFirst?.restore();
    await new Promise((resolve) => setTimeout(resolve, APART_MS));
    expect(await rowOf(attached)).toMatchObject({ state: "live" });
    expect(await rowOf(runId)).toMatchObject({ state: "live" });
    // Lapsed, but not claimed.
    expect((await rowOf(made)).provision_claimed_until < new Date()).toBe(true);
    await lineOfOther?.restore();

    // By now both processes have written again, so a wrong take-over would show.
    await eventually(async () => expect((await rowOf(runId)).destroy_after > new Date()).toBe(true), 20_000);
    await eventually(async () => {
      const { rows } = await control.sql.query("select from attachments where lease_until > now()");
      expect(rows).toHaveLength(1);
    });
    expect(await rowOf(attached)).toMatchObject({ state: "live" });
    expect(await rowOf(runId)).toMatchObject({ state: "live" });
    expect(await rowOf(restored)).toMatchObject({ state: "live", op: "restore", op_id: operation });
    loaded.resolve();
    over.resolve();
    await control.until(made, "live");
    expect((await restore).statusCode).toBe(200);
    expect((await run).statusCode).toBe(200);
    client.webSocket.terminate();
    await eventually(async () => expect((await rowOf(attached)).state).toBe("destroyed"), 25_000);
  },
  PATIENCE_MS * 2,
);
