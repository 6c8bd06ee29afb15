/** Deaths of control at every point of an upload, of a fetch and of a removal: the next process finishes it, and nothing is orphaned. */
import { readdirSync } from "node:fs";
import path from "node:path";
import { FakeNode } from "@vivarium/contract/test-support/node";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { killAt, killSweepingAt, letClaimsLapse, withMortal } from "../../test-support/mortal-control.ts";
import { createApp } from "../app.ts";
import { openDatabase } from "../db/pool.ts";
import { removeOrphanChunks } from "./remove-objects.ts";

const LONG_MS = 600_000;
/** Serves requests, and does no work in the background. */
let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false, hasArchives: true });
});
afterAll(() => control.close());

const objectNames = () =>
  readdirSync(path.join(control.settings.controlDir, "objects", "objects"), { recursive: true }).map(String);
const rows = async (text: string, values: unknown[] = []) => (await control.sql.query(text, values)).rows;
const stateOf = async (id: string) =>
  (await rows("select state from archives where session_id = $1", [id]))[0]?.state;

/** The provisioner of a service without sweeps works all the same. */
async function paused(): Promise<string> {
  const id = await control.createLive();
  await control.ask(`PUT /v1/sessions/${id}/files`, { body: { path: "content", content: "kept" } });
  expect((await control.ask(`POST /v1/sessions/${id}/pause`)).body.state).toBe("paused");
  return id;
}

/** The jobs of dead processes are retried now, and not after their heartbeat is missed and a wait. */
async function forgetDead(): Promise<void> {
  await control.sql.query(
    `update vivarium_jobs.job
      set heartbeat_on = now() - interval '1 hour', start_after = now(), retry_delay = 0, retry_backoff = false
      where state in ('active', 'retry')`,
  );
  await control.sql.query("update archives set tries = 0");
}

async function finish(check: () => Promise<void> | void): Promise<void> {
  await forgetDead();
  await withMortal(control, "none", () => eventually(check, 120_000));
}

test("an upload that is cut off at any point is finished", { timeout: LONG_MS }, async () => {
  const id = await paused();
  for (const point of ["archive.attempt", "archive.begun", "object.written", "archive.packed"]) {
    await forgetDead();
    await killSweepingAt(control, point);
    expect(await stateOf(id)).toBe("pending");
  }
  await forgetDead();
  // The first to be settled is the baseline.
  await killSweepingAt(control, "archive.settled");
  await finish(async () => expect(await stateOf(id)).toBe("complete"));
  const complete = await rows("select 1 from events where session_id = $1 and type = 'archive.complete'", [
    id,
  ]);
  expect(complete).toHaveLength(1);
});

test("a pause that dies after its commit has a row, which the next process uploads", {
  timeout: LONG_MS,
}, async () => {
  const id = await control.createLive();
  await killAt(control, "pause.commit", `POST /v1/sessions/${id}/pause`);
  expect(await stateOf(id)).toBe("pending");
  await finish(async () => expect(await stateOf(id)).toBe("complete"));
});

test("a wake that dies while its state is fetched is repeated", { timeout: LONG_MS }, async () => {
  const id = await paused();
  await finish(async () => expect(await stateOf(id)).toBe("complete"));
  const node = new FakeNode({ isScripted: true });
  await node.listen();
  const settings = { ...control.settings, nodeSocket: node.socketPath };
  const app = await createApp(settings, silentLog);
  const other = new Control({ app, node, key: control.key, sql: control.sql, settings });
  for (const point of ["archive.base_fetched", "archive.fetched"]) {
    await killAt(other, point, `POST /v1/sessions/${id}/resume`);
    await letClaimsLapse(other, id);
    // Without a take-over the next request would wait for the claim.
    await control.sql.query(
      "update sessions set op = null, op_id = null, op_input = null, op_claimed_until = null where id = $1",
      [id],
    );
    for (const machine of node.machines.keys()) expect(machine).not.toContain(id);
    if (point === "archive.base_fetched") expect(node.snapshots.size).toBeGreaterThan(0);
  }
  const woken = await other.ask(`POST /v1/sessions/${id}/resume`);
  expect(woken.body).toMatchObject({ state: "live" });
  expect((await other.ask(`GET /v1/sessions/${id}/files?path=content`)).text).toContain("kept");
  await app.close();
  await node.close();
});

test("a removal that is cut off is finished", { timeout: LONG_MS }, async () => {
  const id = await paused();
  await finish(async () => expect(await stateOf(id)).toBe("complete"));
  const [{ space_id: space }] = await rows("select space_id from archives where session_id = $1", [id]);
  const left = () => objectNames().filter((name) => name.includes(`${space}/`));
  expect(left().length).toBeGreaterThan(0);
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  expect(await stateOf(id)).toBeUndefined();
  await killSweepingAt(control, "archive.objects_removed");
  await finish(() => expect(left()).toEqual([]));
});

test("a removal whose job was lost is swept", { timeout: LONG_MS }, async () => {
  const id = await paused();
  await finish(async () => expect(await stateOf(id)).toBe("complete"));
  const [{ space_id: space }] = await rows("select space_id from archives where session_id = $1", [id]);
  const left = () => objectNames().filter((name) => name.includes(`${space}/`));
  expect((await control.ask(`DELETE /v1/sessions/${id}`)).status).toBe(204);
  await killSweepingAt(control, "archive.spaces_deleted");
  expect(await rows("select id from archive_spaces where id = $1", [space])).toEqual([]);
  expect(left().length).toBeGreaterThan(0);
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const objects = await DirectoryStore.open(path.join(control.settings.controlDir, "objects"));
  await removeOrphanChunks({ db, objects, localObjects: objects }, -1).finally(() => db.destroy());
  expect(left()).toEqual([]);
});
