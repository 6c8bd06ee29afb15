/** Without sweeps, which would delete rows that belong to nothing. */
import { afterAll, beforeAll, expect, test } from "vitest";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { type Database, openDatabase } from "../db/pool.ts";
import { Meter } from "../metrics/meter.ts";
import { addObjectGauges } from "./object-gauges.ts";

let db: Database;
beforeAll(async () => {
  db = openDatabase({ url: await createDatabase(), log: silentLog });
});
afterAll(() => db.destroy());

/** Lines of the gauges, as a service reads them that has just started. */
async function read(from = db): Promise<string[]> {
  const meter = new Meter();
  addObjectGauges({ db: from, meter });
  return (await meter.registry.metrics()).split("\n");
}

test("without rows every kind and state is zero", async () => {
  const lines = await read();
  expect(lines.filter((line) => line.startsWith("vivarium_archives{"))).toHaveLength(4 * 3);
  expect(lines).toContain('vivarium_archives{kind="pause",state="failed"} 0');
  expect(lines).toContain('vivarium_archive_bytes{kind="baseline",of="sent"} 0');
  expect(lines).toContain("vivarium_artifact_bytes 0");
});

test("archives by kind and state, their bytes, and those of artifacts are the sums of their rows", async () => {
  const key = Buffer.from("key");
  const of = { org_id: "o", kek_id: "k", data_key: key };
  await db
    .insertInto("archive_spaces")
    .values({ ...of, id: "space", owner: "s" })
    .execute();
  const archive = { ...of, space_id: "space", session_id: "s" };
  const complete = { state: "complete", contents: key, chunks: key, uploaded_at: new Date() } as const;
  await db
    .insertInto("archives")
    .values([
      {
        ...{ ...archive, ...complete, id: "a", kind: "checkpoint", snapshot_id: "1" },
        ...{ differing_bytes: 5_000_000_000, stored_bytes: 300 },
      },
      {
        ...{ ...archive, ...complete, id: "b", kind: "checkpoint", snapshot_id: "2" },
        ...{ differing_bytes: 10, stored_bytes: 4 },
      },
      { ...archive, id: "c", kind: "checkpoint", snapshot_id: "3", state: "pending" },
      { ...archive, id: "d", kind: "template", snapshot_id: "4", state: "failed", error: "why" },
    ])
    .execute();
  await db.insertInto("orgs").values({ id: "o", name: "o" }).execute();
  await db
    .insertInto("artifacts")
    .values({ id: "art", org_id: "o", session_id: "s", cause: "request", paths: [], expires_at: new Date() })
    .execute();
  const file = { artifact_id: "art", pieces: key };
  await db
    .insertInto("artifact_files")
    .values([
      { ...file, position: 0, path: "x", size_bytes: 7_000_000_000 },
      { ...file, position: 1, path: "y", size_bytes: 1 },
    ])
    .execute();
  const lines = await read();
  for (const line of [
    'vivarium_archives{kind="checkpoint",state="complete"} 2',
    'vivarium_archives{kind="checkpoint",state="pending"} 1',
    'vivarium_archives{kind="template",state="failed"} 1',
    'vivarium_archive_bytes{kind="checkpoint",of="packed"} 5000000010',
    'vivarium_archive_bytes{kind="checkpoint",of="sent"} 304',
    'vivarium_archive_bytes{kind="template",of="sent"} 0',
    "vivarium_artifact_bytes 7000000001",
  ])
    expect(lines).toContain(line);
});

test("a database that does not answer leaves the figures out, and is no zero", async () => {
  const away = openDatabase({ url: await createDatabase(), log: silentLog });
  expect(await read(away)).toContain("vivarium_artifact_bytes 0");
  await away.destroy();
  const lines = await read(away);
  expect(lines.filter((line) => /^vivarium_(archive|artifact)_?\w*(bytes|s)[ {]/.test(line))).toEqual([]);
});
