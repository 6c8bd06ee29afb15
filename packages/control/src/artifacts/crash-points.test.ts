/** Deaths of control at every point of a capture and of a removal: it is finished by the next process, and nothing is orphaned. */
import { readdirSync } from "node:fs";
import path from "node:path";
import { DirectoryStore } from "@vivarium/objects/directory-store";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";
import { silentLog } from "../../test-support/database.ts";
import { killAt, killSweepingAt, withMortal } from "../../test-support/mortal-control.ts";
import { openDatabase } from "../db/pool.ts";
import { removeOrphanObjects } from "./remove-objects.ts";

const LONG_MS = 600_000;
const DAY_MS = 24 * 3_600_000;
/** Serves requests, and does no work in the background. */
let control: Control;
beforeAll(async () => {
  control = await startControl({ sweeps: false });
});
afterAll(() => control.close());

const objectsDir = () => path.join(control.settings.controlDir, "objects");
const objectsOf = (aid: string) =>
  readdirSync(path.join(objectsDir(), "objects"), { recursive: true })
    .map(String)
    .filter((name) => name.includes(`${aid}/`));
const read = async (aid: string) => (await control.ask(`GET /v1/artifacts/${aid}`)).body;

const unfinished = () => readdirSync(path.join(objectsDir(), "incoming"));
const machinesOf = (id: string) => [...control.node.machines.keys()].filter((name) => name.startsWith(id));

/** The hourly sweep of the object store, for objects of any age. */
async function sweepNow(graceMs = 0): Promise<void> {
  const db = openDatabase({ url: control.settings.databaseUrl, log: silentLog });
  const objects = await DirectoryStore.open(objectsDir());
  await removeOrphanObjects({ db, objects }, graceMs).finally(() => db.destroy());
}

async function sessionWithFiles(body: object = {}): Promise<string> {
  const id = await control.createLive(body);
  for (const name of ["a", "b"])
    await control.ask(`PUT /v1/sessions/${id}/files`, {
      body: { path: `out/${name}`, content: name.repeat(100) },
    });
  return id;
}

/** Lets a process that does not die do the work, until `check` passes. */
async function finish(check: () => Promise<void> | void): Promise<void> {
  await forgetDead();
  await withMortal(control, "none", () => eventually(check, 120_000));
}

/** The jobs of dead processes are retried now, and not after their heartbeat is missed and a wait. */
async function forgetDead(): Promise<void> {
  await control.sql.query(
    `update vivarium_jobs.job
      set heartbeat_on = now() - interval '1 hour', start_after = now(), retry_delay = 0, retry_backoff = false
      where state in ('active', 'retry')`,
  );
}

async function expectWhole(aid: string): Promise<void> {
  const { files } = await read(aid);
  expect(files.map((file: { path: string }) => file.path)).toEqual(["out/a", "out/b"]);
  for (const { url, path: name } of files) {
    const { pathname, search } = new URL(url);
    expect((await control.ask(`GET ${pathname}${search}`, { key: null })).text).toBe(
      name.slice(-1).repeat(100),
    );
  }
  expect(objectsOf(aid)).toHaveLength(2);
  const { rows } = await control.sql.query("select kek_id from artifacts where id = $1", [aid]);
  expect(rows[0].kek_id).toBe("kek_1");
}

test("a capture that is cut off at any point is finished", { timeout: LONG_MS }, async () => {
  const id = await sessionWithFiles();
  const asked = await control.ask(`POST /v1/sessions/${id}/artifacts`, { body: { paths: ["out"] } });
  const aid = asked.body.id;
  const points = [
    ...["artifact.begun", "artifact.matched", "artifact.keyed", "object.written"],
    ...["artifact.piece", "artifact.file"],
  ];
  for (const point of points) {
    await forgetDead();
    await killSweepingAt(control, point);
    expect((await read(aid)).status).toBe("pending");
  }
  await forgetDead();
  await killSweepingAt(control, "artifact.settled");
  expect((await read(aid)).status).toBe("ready");
  await expectWhole(aid);
  expect(unfinished()).toHaveLength(1);
  await sweepNow();
  expect(unfinished()).toEqual([]);
  await expectWhole(aid);
});

test("a capture whose job was added, and whose answer was not sent, is done", {
  timeout: LONG_MS,
}, async () => {
  const id = await sessionWithFiles();
  await killAt(control, "artifact.added", `POST /v1/sessions/${id}/artifacts`, { paths: ["out"] });
  const [{ id: aid }] = (await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts;
  await finish(async () => expect((await read(aid)).status).toBe("ready"));
  await expectWhole(aid);
});

test("a capture that fails for good is over after a death, with its reason, and what it had stored is swept", {
  timeout: LONG_MS,
}, async () => {
  const id = await sessionWithFiles();
  const asked = await control.ask(`POST /v1/sessions/${id}/artifacts`, { body: { paths: ["out"] } });
  const aid = asked.body.id;
  await killSweepingAt(control, "artifact.file");
  expect(objectsOf(aid)).toHaveLength(1);
  await control.ask(`DELETE /v1/sessions/${id}`);
  await forgetDead();
  await killSweepingAt(control, "artifact.settled");
  expect(await read(aid)).toMatchObject({
    status: "failed",
    error: "the session was destroyed before its files were copied",
  });
  expect(objectsOf(aid)).toHaveLength(1);
  await sweepNow();
  expect(objectsOf(aid)).toEqual([]);
});

test("the capture of a session's end that is cut off is finished, and its machine goes then", {
  timeout: LONG_MS,
}, async () => {
  const id = await sessionWithFiles({ artifacts: { paths: ["out"] } });
  await killAt(control, "destroy.commit", `DELETE /v1/sessions/${id}`);
  const [{ id: aid }] = (await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts;
  await killSweepingAt(control, "artifact.file");
  expect(machinesOf(id)).toEqual([`${id}-1`]);
  await forgetDead();
  await killSweepingAt(control, "artifact.settled");
  expect((await read(aid)).status).toBe("ready");
  await finish(() => expect(machinesOf(id)).toEqual([]));
  await expectWhole(aid);
});

test("a capture whose request died before its job was added is done", { timeout: LONG_MS }, async () => {
  const id = await sessionWithFiles();
  await killAt(control, "artifact.request", `POST /v1/sessions/${id}/artifacts`, { paths: ["out"] });
  const [{ id: aid }] = (await control.ask(`GET /v1/sessions/${id}/artifacts`)).body.artifacts;
  await finish(async () => expect((await read(aid)).status).toBe("ready"));
  await expectWhole(aid);
});

test("a removal that is cut off is finished, and one whose job was lost is swept", {
  timeout: LONG_MS,
}, async () => {
  const id = await sessionWithFiles();
  const capture = async () => {
    const asked = await control.ask(`POST /v1/sessions/${id}/artifacts`, { body: { paths: ["out"] } });
    await finish(async () => expect((await read(asked.body.id)).status).toBe("ready"));
    return asked.body.id;
  };
  const [first, second] = [await capture(), await capture()];
  await control.ask(`DELETE /v1/artifacts/${first}`);
  await killSweepingAt(control, "artifact.object_removed");
  expect(objectsOf(first)).toHaveLength(1);
  await finish(() => expect(objectsOf(first)).toEqual([]));
  await killAt(control, "artifact.deleted", `DELETE /v1/artifacts/${second}`);
  expect(objectsOf(second)).toHaveLength(2);
  await sweepNow(DAY_MS);
  expect(objectsOf(second)).toHaveLength(2);
  await sweepNow();
  expect(objectsOf(second)).toEqual([]);
});
