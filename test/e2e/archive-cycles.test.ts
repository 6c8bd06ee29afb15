/**
 * Sessions that are made, paused, archived in a bucket and destroyed leave nothing: not in the bucket, not in the pool, not
 * on the host, and in the database what is kept of every session alone. Some are destroyed while they are archived.
 */
import { randomInt } from "node:crypto";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { JOBS_SCHEMA } from "../../packages/control/src/jobs/store.ts";
import { type S3World, startS3World } from "../../packages/objects/test-support/s3-world.ts";
import { query } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { sh } from "../support/http.ts";
import { machineTraces } from "../support/machine-traces.ts";
import { type Service, startService } from "../support/service.ts";

const MINUTE_MS = 60_000;
const CYCLES = size({ ci: 4, full: 1_000 });
const AT_ONCE = 2;
/** Every third session is destroyed this long after its pause at most: before, while and after it is packed. */
const MOST_DELAY_MS = 5_000;
/** One warm machine at any time, and archives without regard for others. */
const QUIET = { VIV_WARM_MACHINES: "1", VIV_MAX_WARM_MACHINES: "1", VIV_ARCHIVE_NICENESS: "0" };
/** Tables that keep something of a session that is destroyed, for the days of their history. */
const HISTORY = [
  "sessions",
  "events",
  "audit_log",
  "audit_links",
  "audit_heads",
  "idempotency_keys",
  "egress_usage",
  "snapshot_names",
];
/** Rows of each of these that one session may leave. */
const MOST_ROWS = 20;

let world: S3World;
let own: Service;
let client: Client;
beforeAll(async () => {
  world = await startS3World();
  own = await startService({ env: { ...world.environment, ...QUIET } });
  client = new Client({ url: own.facts.url, apiKey: own.facts.apiKey, retries: 0 });
});
afterAll(async () => {
  await own?.stop();
  await world?.[Symbol.asyncDispose]();
});

async function live(number: number): Promise<void> {
  const { session_id: id } = await client.sessions.create();
  const script = "head -c 300000 /dev/urandom > kept; sha256sum kept > sum";
  const written = await client.sessions.exec(id, { command: sh(script), timeout_ms: MINUTE_MS * SLOWNESS });
  expect(written).toMatchObject({ exit_code: 0 });
  await client.sessions.pause(id);
  if (number % 3 === 0) await sleep(randomInt(MOST_DELAY_MS));
  else await untilArchived(id);
  await client.sessions.delete(id);
}

const untilArchived = (id: string) =>
  eventually(async () => {
    expect((await client.sessions.get(id)).archive).toMatchObject({ status: "complete" });
  }, 3 * MINUTE_MS);

async function many(count: number): Promise<void> {
  let next = 0;
  let done = 0;
  const worker = async () => {
    while (next < count) {
      await live(next++);
      if (++done % 50 === 0) console.log(`${done} of ${count} sessions made, paused and destroyed`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** All of the bucket, the pool and the host that is the service's. */
async function stored() {
  const { Contents = [], IsTruncated } = await world.s3.listObjectsV2({ Bucket: world.bucket });
  expect(IsTruncated).not.toBe(true);
  const { Uploads = [] } = await world.s3.listMultipartUploads({ Bucket: world.bucket });
  const [waiting] = await query(
    own.facts,
    `select count(*)::int as n from ${JOBS_SCHEMA}.job where state::text in ('created', 'retry', 'active') and name like 'archive%'`,
  );
  const { folders, ...traces } = machineTraces(own.facts.dataDir);
  return {
    objects: Contents.map(({ Key }) => Key).toSorted(),
    uploads: Uploads.map(({ Key }) => Key),
    snapshots: readdirSync(join(own.facts.dataDir, "pool/s")),
    pool: readdirSync(join(own.facts.dataDir, "pool")).toSorted(),
    machines: { ...traces, folders: folders.length },
    jobs: waiting?.n,
  };
}

async function rows(): Promise<Record<string, number>> {
  const tables = await query(own.facts, "select tablename from pg_tables where schemaname = 'public'");
  const counts: Record<string, number> = {};
  for (const { tablename } of tables) {
    const [found] = await query(own.facts, `select count(*)::int as n from "${tablename}"`);
    counts[String(tablename)] = Number(found?.n);
  }
  return counts;
}

test(
  `${CYCLES} sessions leave bucket, pool, host and database as they were`,
  async () => {
    await many(AT_ONCE);
    // The baseline stays for the next session.
    const [clean, before] = await eventually(async () => {
      const [now, counts] = [await stored(), await rows()];
      expect(now).toMatchObject({ snapshots: [], uploads: [], jobs: 0 });
      expect(now.objects.filter((key) => !key?.includes("/service/"))).toEqual([]);
      expect(counts.archives).toBe(1);
      return [now, counts];
    }, 5 * MINUTE_MS);
    expect(clean.objects.length).toBeGreaterThan(0);
    await many(CYCLES);
    await eventually(async () => {
      const [now, counts] = [await stored(), await rows()];
      expect(now).toEqual(clean);
      const more = Object.entries(counts).filter(([table, count]) => {
        const most = HISTORY.includes(table) ? MOST_ROWS * CYCLES : 0;
        return count - (before[table] ?? 0) > most;
      });
      expect(more).toEqual([]);
    }, 5 * MINUTE_MS);
  },
  size({ ci: 10, full: 360 }) * MINUTE_MS * SLOWNESS,
);
