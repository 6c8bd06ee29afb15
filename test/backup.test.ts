/** A backup under use: rows, keys and saved states of one instant, from a real database and files that are deleted meanwhile. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { identify } from "@vivarium/kit/process-identity";
import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { backUp } from "../packages/cli/src/backup/back-up.ts";
import type { BackupManifest } from "../packages/cli/src/backup/manifest.ts";
import { restoreBackup } from "../packages/cli/src/backup/restore.ts";
import { beginRestore, moveAside, takeBackUnfinished } from "../packages/cli/src/backup/restore-journal.ts";
import { readConfig } from "../packages/cli/src/config.ts";
import { layoutOf } from "../packages/cli/src/supervisor/layout.ts";
import { requireNoUnfinishedRestore } from "../packages/cli/src/supervisor/unfinished-restore.ts";
import { createDatabase, createEmptyDatabase } from "../packages/control/test-support/database.ts";
import { eventually } from "./support/eventually.ts";

const run = promisify(execFile);
const MAIN = join(import.meta.dirname, "../packages/cli/src/main.ts");
const NEVER = new AbortController().signal;
const idOf = (number: number) => String(number).padStart(21, "s");
const stateOf = (number: number) => `pau_${idOf(number)}`;

let folder: string;
let dataDir: string;
let url: string;
let sql: pg.Client;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "viv-backup-"));
  dataDir = join(folder, "data");
  await mkdir(join(dataDir, "control"), { recursive: true });
  await mkdir(join(dataDir, "pool/s"), { recursive: true });
  await writeFile(join(dataDir, "control/pepper"), Buffer.alloc(32, 200));
  url = await createDatabase();
  sql = new pg.Client({ connectionString: url });
  await sql.connect();
  await sql.query("insert into orgs (id, name, concurrent_sessions) values ('org_a', 'a', 10)");
});
afterEach(async () => {
  await sql.end();
  await rm(folder, { recursive: true, force: true });
});

async function addPaused(number: number, { isHere = true, snapshot = stateOf(number) } = {}): Promise<void> {
  await sql.query(
    `insert into sessions (id, org_id, origin, state, size, template, egress, no_sudo, on_pty_detach, paused_ttl_ms,
         destroy_on_completion, command_capture, wake_on_http, snapshot_id, paused_at, incarnation)
       values ($1, 'org_a', 'api', 'paused', 'small', 'base', '{"mode":"allow","allow":[]}', false, 'pause', 1,
         false, 'hash', true, $2, now(), 1)`,
    [idOf(number), snapshot],
  );
  if (!isHere) return;
  const dir = join(dataDir, "pool/s", snapshot);
  await mkdir(dir);
  await writeFile(join(dir, "mem"), `memory of ${number}`);
  await writeFile(join(dir, "manifest.json"), JSON.stringify({ qemu_build: "0".repeat(64), files: {} }));
}

/** As the service does: the row first, then the folder in two steps. */
async function destroy(number: number): Promise<void> {
  await sql.query(
    "update sessions set state = 'destroyed', ended_at = now(), end_reason = 'client_destroy', snapshot_id = null, paused_at = null where id = $1",
    [idOf(number)],
  );
  const dir = join(dataDir, "pool/s", stateOf(number));
  await rename(dir, `${dir}.removed`);
  await rm(`${dir}.removed`, { recursive: true });
}

const notes: string[] = [];
function save(file: string, savedState = true): Promise<BackupManifest> {
  const config = readConfig({ VIV_DATA_DIR: dataDir, DATABASE_URL: url });
  const terminal = { note: (line: string) => void notes.push(line) } as never;
  return backUp({ config, terminal }, file, { savedState, signal: NEVER });
}

async function contentsOf(file: string): Promise<string[]> {
  const { stdout } = await run("tar", ["--zstd", "-tf", file]);
  return stdout.trim().split("\n");
}

test("it has rows, keys and every saved state that the rows refer to, and leaves nothing beside", async () => {
  await addPaused(1);
  await addPaused(2);
  await mkdir(join(dataDir, "pool/s/pau_of_nobody"));
  const file = join(folder, "b.tar.zst");
  const manifest = await save(file);
  expect(manifest).toMatchObject({ snapshots: [stateOf(1), stateOf(2)], missing: [], saved_state: true });
  const names = await contentsOf(file);
  expect(names[0]).toBe("manifest.json");
  for (const name of [
    "database.jsonl",
    "control/pepper",
    `s/${stateOf(1)}/mem`,
    `s/${stateOf(2)}/manifest.json`,
  ])
    expect(names).toContain(name);
  expect(names.join()).not.toContain("nobody");
  expect((await readdir(join(dataDir, "pool"))).toSorted()).toEqual(["s"]);
});

test("without saved state it has rows and keys alone", async () => {
  await addPaused(1);
  const file = join(folder, "b.tar.zst");
  expect(await save(file, false)).toMatchObject({ snapshots: [], missing: [], saved_state: false });
  expect((await contentsOf(file)).join()).not.toContain("pau_");
});

test("sessions that are made and destroyed meanwhile leave rows and saved states consistent with one another", async () => {
  for (let number = 1; number <= 20; number++) await addPaused(number);
  let isOver = false;
  const churn = (async () => {
    for (let number = 1; !isOver; number++) {
      await addPaused(number + 20);
      await destroy(number);
    }
  })();
  try {
    for (let round = 0; round < 3; round++) {
      const file = join(folder, `b${round}.tar.zst`);
      const { snapshots, missing } = await save(file);
      expect(missing).toEqual([]);
      const { stdout } = await run("tar", ["--zstd", "-xOf", file, "database.jsonl"], { maxBuffer: 1 << 28 });
      const head = JSON.parse(stdout.slice(0, stdout.indexOf("\n")));
      expect(snapshots).toEqual(head.snapshots);
      const names = await contentsOf(file);
      for (const id of snapshots) expect(names).toContain(`s/${id}/mem`);
      const saved = new Set(names.flatMap((name) => /^s\/(pau_\w+)/.exec(name)?.[1] ?? []));
      expect([...saved].toSorted()).toEqual(snapshots.toSorted());
    }
  } finally {
    isOver = true;
    await churn;
  }
});

test("a saved state that the node has lost is named, and the rest is saved", async () => {
  await addPaused(1);
  await addPaused(2, { isHere: false });
  expect(await save(join(folder, "b.tar.zst"))).toMatchObject({
    snapshots: [stateOf(1)],
    missing: [stateOf(2)],
  });
});

/** Turns the pool into one that a file holds, as on a filesystem that shares no blocks, and unmounts it as a boot does. */
async function moveIntoImage(): Promise<void> {
  const [pool, image] = [join(dataDir, "pool"), join(dataDir, "pool.img")];
  await run("truncate", ["-s", "320M", image]);
  await run("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
  await rename(pool, `${pool}.before`);
  await mkdir(pool);
  await run("mount", ["-t", "xfs", "-o", "loop", image, pool]);
  await run("cp", ["-a", `${pool}.before/.`, pool]);
  await run("umount", [pool]);
}

test("the pool of a stopped service is mounted for its saved states, and no longer than that", async () => {
  await addPaused(1);
  await moveIntoImage();
  const file = join(folder, "b.tar.zst");
  expect(await save(file)).toMatchObject({ snapshots: [stateOf(1)], missing: [] });
  expect(await contentsOf(file)).toContain(`s/${stateOf(1)}/mem`);
  expect(await readdir(join(dataDir, "pool"))).toEqual([]);
  expect((await run("losetup", ["--associated", join(dataDir, "pool.img")])).stdout).toBe("");
  expect(await readdir(join(dataDir, "run"))).toEqual([]);
});

test("a pool that cannot be mounted is said, and no file is made of what is not seen", async () => {
  await addPaused(1);
  await writeFile(join(dataDir, "pool.img"), "no filesystem");
  await expect(save(join(folder, "b.tar.zst"))).rejects.toThrow("the storage pool is not usable");
  expect((await readdir(folder)).toSorted()).toEqual(["data"]);
});

test("beside a service that starts, whose pool is not mounted yet, a backup with saved state is refused", async () => {
  await addPaused(1);
  await moveIntoImage();
  await mkdir(join(dataDir, "run"));
  const holder = { ...identify(process.pid), url: "http://127.0.0.1:1" };
  await writeFile(join(dataDir, "run/supervisor.lock"), JSON.stringify(holder));
  await expect(save(join(folder, "b.tar.zst"))).rejects.toThrow("is not mounted");
});

test("an archive is not replaced by one that lacks saved states of it which rows still refer to", async () => {
  await addPaused(1);
  await addPaused(2);
  const file = join(folder, "b.tar.zst");
  await save(file);
  const whole = await readFile(file);
  await rm(join(dataDir, "pool/s", stateOf(1)), { recursive: true });
  await expect(save(file)).rejects.toThrow(`has saved states that the new backup would lack: ${stateOf(1)}`);
  await expect(save(file, false)).rejects.toThrow(`lack: ${stateOf(1)}, ${stateOf(2)}`);
  expect((await readFile(file)).equals(whole)).toBe(true);
  expect((await readdir(folder)).toSorted()).toEqual(["b.tar.zst", "data"]);
  // A state that no row refers to any more is no loss, and another name can always be had.
  expect(await save(join(folder, "c.tar.zst"))).toMatchObject({ missing: [stateOf(1)] });
  await sql.query(
    "update sessions set state = 'destroyed', ended_at = now(), end_reason = 'client_destroy', snapshot_id = null, paused_at = null where id = $1",
    [idOf(1)],
  );
  expect(await save(file)).toMatchObject({ snapshots: [stateOf(2)], missing: [] });
});

test("a name in the rows that is no id of a saved state leads nowhere", async () => {
  const outside = join(folder, "outside");
  await mkdir(outside);
  await writeFile(join(outside, "manifest.json"), JSON.stringify({ qemu_build: "0".repeat(64), files: {} }));
  await writeFile(join(outside, "secret"), "of root");
  await addPaused(1, { isHere: false, snapshot: "../../../outside" });
  const file = join(folder, "b.tar.zst");
  expect(await save(file)).toMatchObject({ snapshots: [], missing: ["../../../outside"] });
  expect((await contentsOf(file)).join()).not.toContain("secret");
  expect(await readdir(folder)).toEqual(expect.arrayContaining(["b.tar.zst", "data", "outside"]));
  expect((await readdir(outside)).toSorted()).toEqual(["manifest.json", "secret"]);
});

test("a link in the directory of keys, which control's user may have made, is not followed", async () => {
  await writeFile(join(folder, "secret"), "of root");
  await symlink(join(folder, "secret"), join(dataDir, "control/extra"));
  const file = join(folder, "b.tar.zst");
  await save(file);
  expect((await contentsOf(file)).join()).not.toContain("extra");
});

test("a database that does not answer, and a directory without keys, make no file", async () => {
  const file = join(folder, "b.tar.zst");
  url = "postgresql://nobody@127.0.0.1:1/none";
  await expect(save(file)).rejects.toThrow("cannot write the database's rows");
  await rm(join(dataDir, "control/pepper"));
  await expect(save(file)).rejects.toThrow();
  await rm(join(dataDir, "control"), { recursive: true });
  await expect(save(file)).rejects.toThrow("has no keys");
  expect((await readdir(folder)).toSorted()).toEqual(["data"]);
});

function putInto(otherUrl: string, file: string, force: boolean) {
  const config = readConfig({ VIV_DATA_DIR: join(folder, "other"), DATABASE_URL: otherUrl });
  return restoreBackup({ config, terminal: { note: () => {} } as never }, file, { force, signal: NEVER });
}

test("a restore refuses the database of another application before it touches anything, also with --force", async () => {
  const file = join(folder, "b.tar.zst");
  await save(file);
  const otherUrl = await createEmptyDatabase();
  const other = new pg.Client({ connectionString: otherUrl });
  await other.connect();
  try {
    await other.query("create table events (id int); insert into events select generate_series(1, 5000)");
    for (const force of [false, true])
      await expect(putInto(otherUrl, file, force)).rejects.toThrow(
        "has 1 table of another application (events)",
      );
    expect((await other.query("select from events")).rowCount).toBe(5000);
  } finally {
    await other.end();
  }
  expect((await readdir(join(folder, "other"))).toSorted()).toEqual(["log", "run"]);
});

test("a backup whose manifest names a saved state elsewhere is refused before anything is touched", async () => {
  const file = join(folder, "b.tar.zst");
  const manifest = await save(file);
  const changed = { ...manifest, snapshots: ["../../evil"] };
  await writeFile(join(folder, "manifest.json"), JSON.stringify(changed));
  await run("tar", ["--zstd", "-cf", file, "-C", folder, "manifest.json"]);
  await expect(putInto(await createEmptyDatabase(), file, true)).rejects.toThrow('is "../../evil"');
  expect((await readdir(folder)).toSorted()).toEqual(["b.tar.zst", "data", "manifest.json"]);
});

/** Files of `other`, but for what every directory has. */
const namesThere = async () =>
  (await readdir(join(folder, "other")))
    .filter((name) => !/^(log|run|pool|pool\.img)$/.test(name))
    .toSorted();

function vivThere(otherUrl: string, ...argv: string[]) {
  const env = { ...process.env, DATABASE_URL: otherUrl, VIV_DATA_DIR: join(folder, "other") };
  return spawn(process.execPath, ["--no-warnings", MAIN, ...argv], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
}

async function endOf(child: ReturnType<typeof vivThere>): Promise<{ code: number | null; err: string }> {
  const [[code], err] = await Promise.all([once(child, "close"), text(child.stderr), text(child.stdout)]);
  return { code, err };
}

test("after a restore that was killed nothing starts as if it were new, and a second one puts all in place", async () => {
  await addPaused(1, { isHere: false });
  const file = join(folder, "b.tar.zst");
  await save(file, false);
  const other = join(folder, "other");
  await mkdir(join(other, "control"), { recursive: true });
  await writeFile(join(other, "control/pepper"), "of before");
  const otherUrl = await createEmptyDatabase();
  const client = new pg.Client({ connectionString: otherUrl });
  await client.connect();
  try {
    // The load waits for this lock when it makes the tables.
    await client.query("select pg_advisory_lock(7483920117)");
    const killed = vivThere(otherUrl, "restore-backup", "--force", file);
    await eventually(async () =>
      expect(JSON.parse(await readFile(join(other, "restore.json"), "utf8")).hasOwnRows).toBe(true),
    );
    killed.kill("SIGKILL");
    await once(killed, "close");
    expect(await namesThere()).toEqual([
      "control",
      expect.stringMatching(/^control\.before/),
      "restore.json",
    ]);

    const started = await endOf(vivThere(otherUrl, "up"));
    expect(started.code).toBe(1);
    expect(started.err).toContain(`a restore of ${file} into ${other} was interrupted`);
    expect(started.err).toContain(`viv restore-backup --force --data-dir ${other} ${file}`);
    const saved = await endOf(vivThere(otherUrl, "backup", join(folder, "c.tar.zst")));
    expect(saved.err).toContain("was interrupted");
    // The rows may be there already, and those of before not be had back.
    const undone = await endOf(vivThere(otherUrl, "restore-backup", "--undo"));
    expect(undone).toMatchObject({ code: 1, err: expect.stringContaining("Repeat the restore instead") });
    await client.query("select pg_advisory_unlock_all()");
    await eventually(async () => {
      const { rows } = await client.query("select from pg_stat_activity where datname = current_database()");
      expect(rows).toHaveLength(1);
    });
    const { rows } = await putInto(otherUrl, file, true);
    expect(rows).toBeGreaterThan(0);
    expect(await readFile(join(other, "control/pepper"))).toEqual(Buffer.alloc(32, 200));
    expect((await client.query("select id from sessions")).rows).toEqual([{ id: idOf(1) }]);
    const [control, aside = ""] = await namesThere();
    expect([control, await readFile(join(other, aside, "pepper"), "utf8")]).toEqual(["control", "of before"]);
    expect(await namesThere()).toHaveLength(2);
  } finally {
    await client.end();
    await run("umount", [join(other, "pool")]).catch(() => {});
  }
});

test("a restore that was killed before the rows is undone, also when the undo is interrupted too", async () => {
  const layout = layoutOf(dataDir);
  const cluster = join(layout.postgresDir, "data");
  await mkdir(cluster, { recursive: true });
  await writeFile(join(cluster, "PG_VERSION"), "of before");
  const journal = await beginRestore(layout, "/b", [layout.controlDir, cluster]);
  await expect(requireNoUnfinishedRestore(layout)).rejects.toThrow("a restore of /b into");
  await moveAside(layout, journal);
  for (const made of [layout.controlDir, cluster]) await mkdir(made);
  await writeFile(join(layout.controlDir, "pepper"), "of the backup");
  // An undo that ended after its first directory.
  await rm(cluster, { recursive: true });
  await rename(join(dataDir, journal.moves[1]?.aside ?? ""), cluster);
  expect(await takeBackUnfinished(layout)).toBe("/b");
  expect(await readFile(join(layout.controlDir, "pepper"))).toEqual(Buffer.alloc(32, 200));
  expect(await readFile(join(cluster, "PG_VERSION"), "utf8")).toBe("of before");
  expect((await readdir(dataDir)).toSorted()).toEqual(["control", "pool", "postgres"]);
  await requireNoUnfinishedRestore(layout);
  await expect(takeBackUnfinished(layout)).rejects.toThrow("was interrupted; nothing was changed");
});

test("an undone restore into a directory without data leaves none", async () => {
  const layout = layoutOf(join(folder, "fresh"));
  await mkdir(layout.dataDir);
  const journal = await beginRestore(layout, "/b", [layout.controlDir, join(layout.postgresDir, "data")]);
  await moveAside(layout, journal);
  await mkdir(join(layout.postgresDir, "data"), { recursive: true });
  await takeBackUnfinished(layout);
  expect(await readdir(layout.dataDir)).toEqual(["postgres"]);
  expect(await readdir(layout.postgresDir)).toEqual([]);
});

test("the rows of a backup are those of the database", async () => {
  await addPaused(1);
  const file = join(folder, "b.tar.zst");
  await save(file);
  await run("tar", ["--zstd", "-xf", file, "-C", folder, "database.jsonl"]);
  const dumped = await readFile(join(folder, "database.jsonl"), "utf8");
  expect(dumped).toContain(idOf(1));
  expect(JSON.parse(dumped.trim().split("\n").at(-1) ?? "")).toEqual({ rows: expect.any(Number) });
});
