/**
 * An update by `viv up` of the next version: sessions live, paused and attached continue with their memory, and the schema
 * changes once. A next version that fails leaves the rows as they were, and there is a way back from one that does not.
 * The versions are copies as `viv install` makes them, with migrations added.
 */
import { execFile } from "node:child_process";
import { chmod, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import pg from "pg";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Copy, makeCopy } from "../../packages/cli/src/update/copies.ts";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { machinePid } from "../support/machine-traces.ts";
import { IMAGES, type Service, type ServiceFacts, startService } from "../support/service.ts";
import { openTerminal } from "../support/web-socket.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "../..");
const MIGRATIONS = "packages/control/src/db/migrations";
const COUNTER = "(n=0; while :; do n=$((n+1)); echo $n > /dev/shm/count; sleep 0.2; done) > /dev/null 2>&1 &";

let folder: string;
let first: Copy;
let schema: number;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "viv-update-"));
  await chmod(folder, 0o755);
  first = await makeCopy(ROOT, join(folder, "copies"));
  schema = (await readdir(join(first.path, MIGRATIONS))).filter((name) => name.endsWith(".sql")).length;
}, 300_000 * SLOWNESS);
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A version with one more migration than another one. */
async function versionAfter(root: string, name: string, number: number, sql: string): Promise<string> {
  const target = join(folder, name);
  await run("cp", ["-al", root, target]);
  await writeFile(join(target, MIGRATIONS, `${String(number).padStart(4, "0")}_${name}.sql`), sql);
  // The linked file is also that of the other version.
  await rm(join(target, "copy.json"));
  await writeFile(join(target, "copy.json"), JSON.stringify({ version: `9.9.9+${name}`, made_at: "" }));
  return target;
}

/** Runs `viv` of a version to its end. */
async function vivOf(root: string, ...argv: string[]): Promise<{ code: number; text: string }> {
  const main = join(root, "packages/cli/src/main.ts");
  const env = { PATH: process.env.PATH, HOME: folder, VIV_WARM_MACHINES: "0" };
  return await run(process.execPath, [main, ...argv], { env, timeout: 200_000 * SLOWNESS }).then(
    ({ stdout, stderr }) => ({ code: 0, text: stdout + stderr }),
    ({ code, stdout, stderr }) => ({ code, text: stdout + stderr }),
  );
}

async function down({ dataDir, pid }: ServiceFacts): Promise<void> {
  expect((await vivOf(ROOT, "down", "--data-dir", dataDir)).code).toBe(0);
  await eventually(() => expect(readProcess(pid)).toBeUndefined());
}

/** A start that fails: it ends by itself, and says why. */
async function failingUp(root: string, { dataDir, url }: ServiceFacts) {
  const listen = new URL(url).host;
  return await vivOf(root, "up", "--data-dir", dataDir, "--images-dir", IMAGES, "--listen", listen);
}

async function query(dataDir: string, text: string): Promise<string> {
  const host = encodeURIComponent(join(dataDir, "run/postgres"));
  const sql = new pg.Client({ connectionString: `postgres://vivarium@/vivarium?host=${host}` });
  await sql.connect();
  return await sql
    .query(text)
    .then(({ rows }) => JSON.stringify(rows))
    .finally(() => sql.end());
}

const clientOf = ({ url, apiKey }: ServiceFacts) => new Client({ url, apiKey, retries: 0 });
const inGuest = async (facts: ServiceFacts, id: string, script: string) =>
  (await clientOf(facts).sessions.exec(id, { command: ["sh", "-c", script] })).stdout;

/** A live, a paused and an attached session, each with something in its memory. */
async function makeSessions(facts: ServiceFacts) {
  const { sessions } = clientOf(facts);
  const requests = [{}, {}, { on_pty_detach: "keep_live" as const }];
  const ids: string[] = [];
  for (const request of requests) {
    const { session_id } = await sessions.create(request);
    await sessions.waitUntilLive(session_id);
    ids.push(session_id);
  }
  const [live = "", paused = "", attached = ""] = ids;
  await inGuest(facts, live, COUNTER);
  await inGuest(facts, paused, `echo ${paused} > /dev/shm/note`);
  await sessions.pause(paused);
  const terminal = await openTerminal(attached, "?terminal=main", facts);
  terminal.type("mine=there; echo pid-$$-\n");
  const shell = await terminal.shows(/pid-\d+-/);
  return { live, paused, attached, terminal, shell };
}

test(
  "sessions continue under the next version, which migrates once; one that fails changes nothing; and there is a way back",
  async () => {
    const next = await versionAfter(
      first.path,
      "next",
      schema + 1,
      "alter table orgs add column motto text;",
    );
    const failing = await versionAfter(
      next,
      "failing",
      schema + 2,
      "update orgs set motto = 'lost'; select 1 / 0;",
    );
    let service: Service = await startService({ root: first.path });
    onTestFinished(() => service.stop());
    const { dataDir } = service.facts;
    const made = await makeSessions(service.facts);
    const machines = [made.live, made.attached].map((id) => machinePid(dataDir, id));
    await down(service.facts);
    expect(await made.terminal.closed).not.toBe(1000);

    service = await startService({ root: next, dataDir });
    const rowsFiles = async () =>
      (await readdir(join(dataDir, "control"))).filter((name) => name.startsWith("rows-"));
    expect(await rowsFiles()).toEqual([expect.stringMatching(new RegExp(`^rows-0*${schema}-`))]);
    const applied = `select number, applied_at from schema_migrations where number > ${schema}`;
    const once = await query(dataDir, applied);
    expect(JSON.parse(once)).toHaveLength(1);
    expect([made.live, made.attached].map((id) => machinePid(dataDir, id))).toEqual(machines);
    const count = async () => Number(await inGuest(service.facts, made.live, "cat /dev/shm/count"));
    const seen = await count();
    await eventually(async () => expect(await count()).toBeGreaterThan(seen));
    expect(await inGuest(service.facts, made.paused, "cat /dev/shm/note")).toBe(`${made.paused}\n`);
    const again = await openTerminal(made.attached, "?terminal=main", service.facts);
    again.type("echo still-$mine-$$-\n");
    await again.shows(new RegExp(`still-there-${made.shell.slice(4)}`));
    await again.close();

    const rows = () => query(dataDir, "select id, name, motto, created_at from orgs order by id");
    const before = await rows();
    await down(service.facts);
    const failed = await failingUp(failing, service.facts);
    expect(failed).toMatchObject({ code: 1, text: expect.stringContaining("division by zero") });
    const refused = await failingUp(first.path, service.facts);
    expect(refused).toMatchObject({
      code: 1,
      text: expect.stringContaining(`the database has schema ${schema + 1}`),
    });

    service = await startService({ root: next, dataDir });
    expect([await rows(), await query(dataDir, applied)]).toEqual([before, once]);
    expect(await count()).toBeGreaterThan(seen);
    await down(service.facts);
    const [saved = ""] = (await rowsFiles()).filter((name) => name.includes(`${schema}-`));
    const file = join(dataDir, "control", saved);
    expect(await vivOf(first.path, "restore-backup", "--data-dir", dataDir, "--force", file)).toMatchObject({
      code: 0,
    });
    service = await startService({ root: first.path, dataDir });
    expect(await inGuest(service.facts, made.paused, "cat /dev/shm/note")).toBe(`${made.paused}\n`);
    expect(await count()).toBeGreaterThan(seen);
    for (const id of [made.live, made.paused, made.attached])
      await clientOf(service.facts).sessions.delete(id);
  },
  600_000 * SLOWNESS,
);
