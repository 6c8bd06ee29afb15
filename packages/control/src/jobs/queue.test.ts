import { type ChildProcess, spawn } from "node:child_process";
import pg from "pg";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { eventually } from "../../test-support/control.ts";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { dumpRows } from "../db/dump-rows.ts";
import { requireOwnOrEmptyDatabase } from "../db/own-tables.ts";
import { openDatabase } from "../db/pool.ts";
import type { JobKind } from "./kinds.ts";
import { type JobHandler, JobQueue } from "./queue.ts";

const KIND: JobKind = { retries: 3, backoffS: 1, expireS: 60, concurrency: 2, waiting: 5 };
let url: string;

beforeAll(async () => {
  url = await createDatabase();
});

/** A queue with one kind, which only the calling test uses. */
async function openQueue(kind: string, more: Partial<JobKind> = {}) {
  const db = openDatabase({ url, log: silentLog });
  const queue = new JobQueue({ url, db, log: silentLog, kinds: { [kind]: { ...KIND, ...more } } });
  await queue.open();
  onTestFinished(async () => {
    await queue.stop();
    await db.destroy();
  });
  const stateOf = async () => (await queue.counts()).find((one) => one.kind === kind);
  return { queue, db, stateOf };
}

test("a job runs once, with the id of its row, and leaves no count", async () => {
  const { queue, stateOf } = await openQueue("once");
  const ran: string[] = [];
  expect(await queue.add("once", "row_1")).toBe("added");
  expect(await stateOf()).toMatchObject({ state: "created", count: 1 });
  await queue.work({ once: async (id) => void ran.push(id) });
  await eventually(async () => expect(await stateOf()).toBeUndefined());
  expect(ran).toEqual(["row_1"]);
  expect(await queue.add("once", "row_1")).toBe("added");
  await eventually(() => expect(ran).toHaveLength(2));
});

test("a row has one job at a time, which two processes that work do not share", async () => {
  const [one, other] = [await openQueue("alone"), await openQueue("alone")];
  let running = 0;
  let most = 0;
  let ran = 0;
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const handler: JobHandler = async () => {
    most = Math.max(most, ++running);
    await finished;
    running--;
    ran++;
  };
  await one.queue.work({ alone: handler });
  await other.queue.work({ alone: handler });
  expect(await one.queue.add("alone", "row_1")).toBe("added");
  expect(await other.queue.add("alone", "row_1")).toBe("present");
  await eventually(() => expect(running).toBe(1));
  expect(await other.queue.add("alone", "row_1")).toBe("present");
  finish();
  await eventually(async () => expect(await one.stateOf()).toBeUndefined());
  expect({ most, ran }).toEqual({ most: 1, ran: 1 });
});

test("a job that fails is tried again until its attempts are used up, and then counts as failed", async () => {
  const { queue, stateOf } = await openQueue("failing", { retries: 1, backoffS: 0 });
  let attempts = 0;
  await queue.work({
    failing: async () => {
      attempts++;
      throw new Error("not this time");
    },
  });
  await queue.add("failing", "row_1");
  await eventually(async () => expect(await stateOf()).toMatchObject({ state: "failed", count: 1 }), 30_000);
  expect(attempts).toBe(2);
  expect(await queue.add("failing", "row_1")).toBe("added");
});

test("more jobs than may wait are refused, and taken once some have run", async () => {
  const { queue } = await openQueue("bounded", { waiting: 2 });
  expect(await queue.add("bounded", "row_1")).toBe("added");
  expect(await queue.add("bounded", "row_2")).toBe("added");
  expect(await queue.add("bounded", "row_3")).toBe("full");
  await queue.work({ bounded: async () => {} });
  await eventually(async () => expect(await queue.add("bounded", "row_3")).not.toBe("full"));
});

test("no more jobs of a kind run at once than its concurrency", async () => {
  const { queue, stateOf } = await openQueue("narrow", { concurrency: 2, waiting: 10 });
  let running = 0;
  let most = 0;
  for (let n = 0; n < 6; n++) await queue.add("narrow", `row_${n}`);
  await queue.work({
    narrow: async () => {
      most = Math.max(most, ++running);
      await new Promise((resolve) => setTimeout(resolve, 50));
      running--;
    },
  });
  await eventually(async () => expect(await stateOf()).toBeUndefined());
  expect(most).toBe(2);
});

test("a job whose process is killed runs again in another one", { timeout: 120_000 }, async () => {
  const { queue, stateOf } = await openQueue("mortal");
  await queue.add("mortal", "row_1");
  const child = spawn(
    process.execPath,
    [new URL("../../test-support/job-worker.ts", import.meta.url).pathname],
    {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, DATABASE_URL: url, JOB_KIND: "mortal" },
    },
  );
  onTestFinished(() => void child.kill("SIGKILL"));
  expect(await firstLine(child)).toBe("runs row_1");
  child.kill("SIGKILL");
  const ran: string[] = [];
  await queue.work({ mortal: async (id) => void ran.push(id) });
  expect(await stateOf()).toMatchObject({ state: "active" });
  await eventually(() => expect(ran).toEqual(["row_1"]), 60_000);
});

test("a stop ends running jobs by their signal, and leaves them for a retry", async () => {
  const { queue } = await openQueue("stopped", { backoffS: 0 });
  let runs = false;
  await queue.work({
    stopped: async (_id, stopping) => {
      runs = true;
      await new Promise((_, reject) => stopping.addEventListener("abort", () => reject(stopping.reason)));
    },
  });
  await queue.add("stopped", "row_1");
  await eventually(() => expect(runs).toBe(true));
  await queue.stop();
  const next = await openQueue("stopped", { backoffS: 0 });
  const ran: string[] = [];
  await next.queue.work({ stopped: async (id) => void ran.push(id) });
  await eventually(() => expect(ran).toEqual(["row_1"]), 30_000);
});

test("a dump of the rows leaves jobs out, and a database that has only their schema is taken", async () => {
  const { queue } = await openQueue("dumped");
  await queue.add("dumped", "row_dumped");
  const lines: string[] = [];
  await dumpRows(url, async (line) => void lines.push(line));
  expect(lines.join("\n")).not.toMatch(/row_dumped|vivarium_jobs|pgboss/);
  await requireOwnOrEmptyDatabase(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query("drop schema public cascade; create schema public").finally(() => client.end());
  await requireOwnOrEmptyDatabase(url);
});

async function firstLine(child: ChildProcess): Promise<string> {
  for await (const chunk of child.stdout ?? []) return String(chunk).trim();
  throw new Error("the process ended without a line");
}
