/** A backup under use: rows, keys and saved states of one instant, from a real database and files that are deleted meanwhile. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import {
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { identify } from "@vivarium/kit/process-identity";
import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { backUp } from "../packages/cli/src/backup/back-up.ts";
import type { BackupManifest } from "../packages/cli/src/backup/manifest.ts";
import { putRows } from "../packages/cli/src/backup/put-rows.ts";
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
  for (const dir of ["data", "other"]) await run("umount", [join(folder, dir, "pool")]).catch(() => {});
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
function save(
  file: string,
  savedState = true,
  without: { volumes?: false; artifacts?: false } = {},
): Promise<BackupManifest> {
  const config = readConfig({ VIV_DATA_DIR: dataDir, DATABASE_URL: url });
  const terminal = { note: (line: string) => void notes.push(line) } as never;
  return backUp({ config, terminal }, file, {
    savedState,
    volumes: true,
    artifacts: true,
    ...without,
    signal: NEVER,
  });
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

test("it says which templates have files that it does not have", async () => {
  await sql.query(
    `insert into templates (id, org_id, name, version, size, baseline, no_sudo, has_memory, source_image, sizes)
       select 'tpl_' || lpad(n::text, 21, 't'), 'org_a', 'deb', n, 'small', 'x', false, false, 'debian:13', '{small}'
         from generate_series(1, 7) n`,
  );
  notes.length = 0;
  await save(join(folder, "b.tar.zst"));
  expect(notes.join("\n")).toContain(
    "not in the backup: deb@1, deb@2, deb@3, deb@4, deb@5 and 2 more; after a restore on another host import them again",
  );
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

/** Turns the pool into one that a file holds, as on a filesystem that shares no blocks. */
async function mountImage(): Promise<void> {
  const [pool, image] = [join(dataDir, "pool"), join(dataDir, "pool.img")];
  await run("truncate", ["-s", "320M", image]);
  await run("mkfs.xfs", ["-q", "-m", "reflink=1", image]);
  await rename(pool, `${pool}.before`);
  await mkdir(pool);
  await run("mount", ["-t", "xfs", "-o", "loop", image, pool]);
  await run("cp", ["-a", `${pool}.before/.`, pool]);
}

/** The pool as a boot leaves it: not mounted. */
async function moveIntoImage(): Promise<void> {
  await mountImage();
  await run("umount", [join(dataDir, "pool")]);
}

test("the pool of a stopped service is mounted for its saved states, and no longer than that", async () => {
  await addPaused(1);
  await moveIntoImage();
  const file = join(folder, "b.tar.zst");
  expect(await save(file)).toMatchObject({ snapshots: [stateOf(1)], missing: [] });
  expect(await contentsOf(file)).toContain(`s/${stateOf(1)}/mem`);
  expect(await readdir(join(dataDir, "pool"))).toEqual([]);
  // The kernel lets go of the file once no other program of the host looks at the loop device.
  await eventually(async () =>
    expect((await run("losetup", ["--associated", join(dataDir, "pool.img")])).stdout).toBe(""),
  );
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
  await expect(save(file)).rejects.toThrow(`has what the new backup would lack: ${stateOf(1)}`);
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

test("keys that are elsewhere than what is saved are named", async () => {
  const noteOf = async (kek: string) => {
    notes.length = 0;
    const config = readConfig({ VIV_DATA_DIR: dataDir, DATABASE_URL: url, VIV_KEK_FILE: kek });
    const terminal = { note: (line: string) => void notes.push(line) } as never;
    const parts = { savedState: false, volumes: false, artifacts: false };
    await backUp({ config, terminal }, join(folder, "k.tar.zst"), { ...parts, signal: NEVER });
    return notes.some((line) => line.includes("as VIV_KEK_FILE says"));
  };
  expect(await noteOf("/etc/vivarium/kek")).toBe(true);
  expect(await noteOf(join(dataDir, "control/kek"))).toBe(false);
});

test("a key that is removed after the rows were read is in the backup, before the one that seals", async () => {
  const keyOf = (number: number) => `kek_${number}:${String(number).repeat(43)}`;
  const kek = join(dataDir, "control/kek");
  await writeFile(kek, `# keys\n${keyOf(1)},${keyOf(2)}\n${keyOf(3)}\n`);
  const config = readConfig({ VIV_DATA_DIR: dataDir, DATABASE_URL: url });
  notes.length = 0;
  const note = (line: string) => {
    notes.push(line);
    if (line.includes("rows are saved")) writeFileSync(kek, `# keys\n${keyOf(3)}\n${keyOf(4)}\n`);
  };
  const file = join(folder, "b.tar.zst");
  const parts = { savedState: false, volumes: false, artifacts: false, signal: NEVER };
  await backUp({ config, terminal: { note } as never }, file, parts);
  const { stdout } = await run("tar", ["--zstd", "-xOf", file, "control/kek"]);
  const lines = stdout.split("\n").filter((line) => !line.startsWith("#"));
  expect(lines).toEqual([keyOf(1), keyOf(2), keyOf(3), keyOf(4), ""]);
  expect(notes.join("\n")).toContain("removed from kek meanwhile, as its rows may need them: kek_1, kek_2");
  expect((await contentsOf(file)).filter((name) => name.startsWith("control"))).toEqual([
    "control/",
    "control/kek",
    "control/pepper",
  ]);
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

const volumeOf = (number: number) => `vol_${String(number).padStart(21, "v")}`;
const imageOf = (dir: string, number: number) => join(dir, "pool/v", volumeOf(number), "image");

async function addVolume(
  number: number,
  { holder, isHere = true }: { holder?: string; isHere?: boolean } = {},
) {
  await sql.query(
    "insert into volumes (id, org_id, size_gb, state, session_id) values ($1, 'org_a', 1, 'ready', $2)",
    [volumeOf(number), holder ?? null],
  );
  if (!isHere) return;
  await mkdir(join(imageOf(dataDir, number), ".."), { recursive: true });
  await writeFile(imageOf(dataDir, number), `content of ${number}`, { mode: 0o600 });
  await truncate(imageOf(dataDir, number), 1024 ** 3);
  if (holder) await symlink(`${holder}-1`, join(imageOf(dataDir, number), "../holder"));
}

async function beginningOf(image: string): Promise<string> {
  await using handle = await open(image, "r");
  const { buffer } = await handle.read(Buffer.alloc(12), 0, 12, 0);
  return buffer.toString();
}

const artifactOf = (number: number) => `art_${String(number).padStart(21, "a")}`;
const objectsOf = (dir: string, number: number) =>
  join(dir, `objects/objects/org_a/artifacts/${artifactOf(number)}`);
const pieceOf = (number: number, n: number) => Buffer.alloc(32, `${number}.${n}.`);

/** Three files: one of a piece, one of that and another piece, and an empty one. */
async function addArtifact(number: number): Promise<void> {
  await mkdir(objectsOf(dataDir, number), { recursive: true });
  for (const n of [1, 2])
    await writeFile(
      join(objectsOf(dataDir, number), `${pieceOf(number, n).toString("hex")}@`),
      `${number}.${n}`,
    );
  await sql.query(
    `with made as (insert into artifacts (id, org_id, session_id, cause, paths, state, expires_at)
       values ($1, 'org_a', 's', 'request', '{a}', 'ready', now() + interval '1 day') returning id)
     insert into artifact_files (artifact_id, position, path, size_bytes, pieces)
       select id, position, 'f' || position, 3, pieces from made,
         (values (0, $2::bytea), (1, $2::bytea || $3::bytea), (2, ''::bytea)) as file (position, pieces)`,
    [artifactOf(number), pieceOf(number, 1), pieceOf(number, 2)],
  );
}

/** As the service does: the row first, then one object after the other. */
async function removeArtifact(number: number): Promise<void> {
  await sql.query("delete from artifacts where id = $1", [artifactOf(number)]);
  for (const name of await readdir(objectsOf(dataDir, number)))
    await rm(join(objectsOf(dataDir, number), name));
  await rm(objectsOf(dataDir, number), { recursive: true });
}

test("volumes and artifacts are in a backup, and are back after a restore, beside what is there", async () => {
  await mountImage();
  await addVolume(1);
  await addVolume(2, { holder: idOf(9) });
  await addArtifact(1);
  await addArtifact(2);
  // No row names an upload that was never finished, or a volume that is being made.
  await mkdir(join(dataDir, "objects/incoming"), { recursive: true });
  await writeFile(join(dataDir, "objects/incoming/x"), "half");
  await mkdir(join(dataDir, "pool/v/vol_of_nobody"));
  const file = join(folder, "b.tar.zst");
  const artifacts = [artifactOf(1), artifactOf(2)];
  expect(await save(file, false)).toMatchObject({
    format: 2,
    volumes: [volumeOf(1), volumeOf(2)],
    artifacts,
    missing: [],
  });
  const names = (await contentsOf(file)).filter((name) => /^(v|objects)\/.*[^/]$/.test(name));
  expect(names.filter((name) => name.startsWith("v/"))).toEqual([
    `v/${volumeOf(1)}/image`,
    `v/${volumeOf(2)}/image`,
  ]);
  expect(names.filter((name) => name.startsWith("objects/"))).toHaveLength(4);
  // The two images of a GiB are sparse.
  expect((await stat(file)).size).toBeLessThan(1024 ** 2);
  expect((await readdir(dataDir)).filter((name) => name.startsWith("."))).toEqual([]);
  expect((await readdir(join(dataDir, "pool"))).filter((name) => name.startsWith("."))).toEqual([]);

  const other = join(folder, "other");
  const piece = (number: number, n: number) =>
    join(objectsOf(other, number), `${pieceOf(number, n).toString("hex")}@`);
  const contents = async () =>
    await Promise.all([1, 2].flatMap((number) => [1, 2].map((n) => readFile(piece(number, n), "utf8"))));
  expect(await putInto(await createEmptyDatabase(), file, false)).toMatchObject({ unchanged: [] });
  const image = await stat(imageOf(other, 1));
  expect([image.size, image.mode & 0o777, image.uid]).toEqual([1024 ** 3, 0o600, 0]);
  expect(image.blocks * 512).toBeLessThan(1024 ** 2);
  for (const number of [1, 2]) {
    expect(await readdir(join(imageOf(other, number), ".."))).toEqual(["image"]);
    expect(await beginningOf(imageOf(other, number))).toBe(`content of ${number}`);
  }
  expect(await contents()).toEqual(["1.1", "1.2", "2.1", "2.2"]);
  const { uid } = await stat(join(other, "control/pepper"));
  for (const made of ["objects", "objects/objects/org_a", "objects/incoming"]) {
    const found = await stat(join(other, made));
    expect([made, found.mode & 0o077, found.uid]).toEqual([made, 0, uid]);
  }
  expect((await stat(piece(2, 1))).uid).toBe(uid);
  expect(await readdir(join(other, "objects/incoming"))).toEqual([]);

  // One volume has been used there since, one is lost, and of the objects one is damaged and one is lost.
  await writeFile(imageOf(other, 2), "newer");
  await rm(join(imageOf(other, 1), ".."), { recursive: true });
  await writeFile(piece(1, 1), "damaged");
  await rm(piece(2, 2));
  expect(await putInto(await createEmptyDatabase(), file, true)).toMatchObject({ unchanged: [volumeOf(2)] });
  expect(await beginningOf(imageOf(other, 1))).toBe("content of 1");
  expect(await readFile(imageOf(other, 2), "utf8")).toBe("newer");
  expect(await contents()).toEqual(["1.1", "1.2", "2.1", "2.2"]);
});

test("volumes and artifacts that are left out are not in a backup, and do not count as missing", async () => {
  await addVolume(1, { isHere: false });
  await addArtifact(1);
  const file = join(folder, "b.tar.zst");
  expect(await save(file, true, { volumes: false, artifacts: false })).toMatchObject({
    volumes: [],
    artifacts: [],
    missing: [],
  });
  expect((await contentsOf(file)).join()).not.toMatch(/vol_|art_/);
});

/** A session whose state the warm tier has: a contents object, a chunk of its own, and one of the baseline's. */
async function addWarm(number: number): Promise<void> {
  await addPaused(number, { isHere: false });
  await sql.query(
    `insert into archive_spaces (id, org_id, owner, kek_id, data_key, is_local)
       values ($1, 'org_a', $2, 'k', '', true), ($3, 'service', 'local:baselines', 'k', '', true)
       on conflict (owner) do nothing`,
    [spaceOf(number), `local:${idOf(number)}`, spaceOf(0)],
  );
  await sql.query(
    `insert into archives (id, org_id, space_id, kind, snapshot_id, session_id, base_archive, kek_id, data_key, state,
         contents, chunks, uploaded_at, is_cold)
       values ('arc_0', 'service', $1, 'baseline', 'bas_0', null, null, 'k', '', 'complete', $2, '', now(), false),
         ($3, 'org_a', $4, 'pause', $5, $6, 'arc_0', 'k', '', 'complete', $7, $8, now(), true)
       on conflict (id) do nothing`,
    [
      ...[spaceOf(0), pieceOf(0, 1)],
      ...[
        `arc_${number}`,
        spaceOf(number),
        stateOf(number),
        idOf(number),
        pieceOf(number, 1),
        pieceOf(number, 2),
      ],
    ],
  );
  for (const [org, of, n] of [
    ["service", 0, 1],
    ["org_a", number, 1],
    ["org_a", number, 2],
  ] as const) {
    const dir = join(dataDir, `objects/objects/${org}/archives/${spaceOf(of)}`);
    await mkdir(dir, { recursive: true });
    await writeFile(join(dir, `${pieceOf(of, n).toString("hex")}@`), `${of}.${n}`);
  }
}
const spaceOf = (number: number) => `spc_${String(number).padStart(21, "c")}`;

test("states of the warm tier are in a backup with saved state, with what they differ from, and back after a restore", async () => {
  await mountImage();
  await addWarm(1);
  await addPaused(2);
  const file = join(folder, "b.tar.zst");
  expect(await save(file, true, { artifacts: false })).toMatchObject({
    snapshots: [stateOf(2)],
    archives: [spaceOf(0), spaceOf(1)],
    missing: [],
  });
  expect(await putInto(await createEmptyDatabase(), file, false)).toMatchObject({ unchanged: [] });
  const contents = async (org: string, of: number, n: number) => {
    const dir = join(folder, `other/objects/objects/${org}/archives/${spaceOf(of)}`);
    return await readFile(join(dir, `${pieceOf(of, n).toString("hex")}@`), "utf8");
  };
  const found = [contents("service", 0, 1), contents("org_a", 1, 1), contents("org_a", 1, 2)];
  expect(await Promise.all(found)).toEqual(["0.1", "1.1", "1.2"]);

  const without = join(folder, "without.tar.zst");
  expect(await save(without, false)).toMatchObject({ archives: [], missing: [] });
  expect((await contentsOf(without)).join()).not.toContain("spc_");
  // A backup that has them is not replaced by one that lacks them.
  await rm(join(dataDir, `objects/objects/org_a/archives/${spaceOf(1)}`), { recursive: true });
  await expect(save(file)).rejects.toThrow(`lack: ${spaceOf(1)}`);
});

test("a volume, and an artifact of which one object is gone, are named as missing, and the rest is saved", async () => {
  await mountImage();
  await addVolume(1);
  await addVolume(2, { isHere: false });
  await addArtifact(1);
  await addArtifact(2);
  await rm(join(objectsOf(dataDir, 2), `${pieceOf(2, 1).toString("hex")}@`));
  const file = join(folder, "b.tar.zst");
  expect(await save(file)).toMatchObject({
    volumes: [volumeOf(1)],
    artifacts: [artifactOf(1)],
    missing: [volumeOf(2), artifactOf(2)],
  });
  expect((await contentsOf(file)).join()).not.toContain(artifactOf(2));
  // They may be in the file of before alone.
  await rm(imageOf(dataDir, 1));
  await expect(save(file)).rejects.toThrow(`lack: ${volumeOf(1)}`);
  await expect(save(file, true, { artifacts: false })).rejects.toThrow(
    `lack: ${volumeOf(1)}, ${artifactOf(1)}`,
  );
});

test("a volume is saved as it was at one instant, while its machine writes", async () => {
  await mountImage();
  await addVolume(1, { holder: idOf(9) });
  // Each number is written at both ends of the disk, one after the other.
  const [first, last] = [0, 1024 ** 3 - 4096];
  const handle = await open(imageOf(dataDir, 1), "r+");
  let isOver = false;
  const writing = (async () => {
    const block = Buffer.alloc(4096);
    for (let number = 1; !isOver; number++) {
      block.writeUInt32LE(number);
      for (const at of [first, last]) await handle.write(block, 0, block.length, at);
    }
  })();
  try {
    const seen: number[] = [];
    for (let round = 0; round < 3; round++) {
      const file = join(folder, `b${round}.tar.zst`);
      await save(file);
      await run("tar", ["--zstd", "-xf", file, "-C", folder, `v/${volumeOf(1)}/image`]);
      await using copy = await open(join(folder, "v", volumeOf(1), "image"), "r");
      const numberAt = async (at: number) =>
        (await copy.read(Buffer.alloc(4), 0, 4, at)).buffer.readUInt32LE();
      const [one, other] = [await numberAt(first), await numberAt(last)];
      expect([0, 1]).toContain(one - other);
      seen.push(one);
    }
    expect(seen).toEqual(seen.toSorted((a, b) => a - b));
    expect(seen.at(-1)).toBeGreaterThan(seen[0] ?? 0);
  } finally {
    isOver = true;
    await writing;
    await handle.close();
  }
});

test("where the pool shares no blocks a volume is not saved torn, but refused", async () => {
  await mkdir(join(dataDir, "pool"), { recursive: true });
  await run("mount", ["-t", "tmpfs", "tmpfs", join(dataDir, "pool")]);
  await addVolume(1);
  await expect(save(join(folder, "b.tar.zst"))).rejects.toThrow("its file system shares no blocks");
  expect(existsSync(join(folder, "b.tar.zst"))).toBe(false);
});

test("artifacts that are made and deleted meanwhile leave rows and objects consistent with one another", async () => {
  // Each lives while a hundred others are made: a real one lives longer.
  const others = 100;
  for (let number = 1; number <= others; number++) await addArtifact(number);
  let isOver = false;
  const churn = (async () => {
    for (let number = 1; !isOver; number++) {
      await addArtifact(number + others);
      await removeArtifact(number);
    }
  })();
  try {
    for (let round = 0; round < 3; round++) {
      const file = join(folder, `b${round}.tar.zst`);
      const { artifacts, missing } = await save(file, false);
      expect(missing).toEqual([]);
      const names = await contentsOf(file);
      for (const id of artifacts)
        expect(names.filter((name) => name.includes(`${id}/`) && name.endsWith("@"))).toHaveLength(2);
      expect(new Set(names.flatMap((name) => /(art_\w+)/.exec(name)?.[1] ?? []))).toEqual(new Set(artifacts));
    }
  } finally {
    isOver = true;
    await churn;
  }
});

test("a link in the object store, which control's user may have made, is not followed", async () => {
  await addArtifact(1);
  await writeFile(join(folder, "secret"), "of root");
  const name = join(objectsOf(dataDir, 1), `${pieceOf(1, 1).toString("hex")}@`);
  await rm(name);
  await symlink(join(folder, "secret"), name);
  const file = join(folder, "b.tar.zst");
  expect(await save(file)).toMatchObject({ artifacts: [], missing: [artifactOf(1)] });
  expect((await contentsOf(file)).join()).not.toContain(artifactOf(1));
});

test("a restore puts no object through a link of control's user", async () => {
  await addArtifact(1);
  const file = join(folder, "b.tar.zst");
  await save(file);
  await mkdir(join(folder, "other/objects/objects"), { recursive: true });
  await mkdir(join(folder, "elsewhere"));
  await symlink(join(folder, "elsewhere"), join(folder, "other/objects/objects/org_a"));
  await expect(putInto(await createEmptyDatabase(), file, false)).rejects.toThrow("is no directory");
  expect(await readdir(join(folder, "elsewhere"))).toEqual([]);
  expect(await readdir(join(folder, "other"))).not.toContain("control");
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

/** The process that loads rows for a restore. */
async function loaderOf({ pid }: ReturnType<typeof vivThere>): Promise<number> {
  const { stdout } = await run("pgrep", ["--parent", `${pid}`, "--full", "backup\\.ts load"]);
  return Number(stdout);
}

test("a restore that does not know whether the database has the rows keeps the service from starting, and says so", async () => {
  const file = join(folder, "b.tar.zst");
  await save(file, false);
  const other = join(folder, "other");
  const otherUrl = await createEmptyDatabase();
  const client = new pg.Client({ connectionString: otherUrl });
  await client.connect();
  try {
    await client.query("select pg_advisory_lock(7483920117)");
    const restore = vivThere(otherUrl, "restore-backup", file);
    const ended = endOf(restore);
    const loader = await eventually(() => loaderOf(restore));
    process.kill(loader, "SIGKILL");
    const { code, err } = await ended;
    expect([code, err]).toEqual([1, expect.stringContaining("the restore is not finished: cannot tell")]);
    await expect(requireNoUnfinishedRestore({ dataDir: other })).rejects.toThrow("was interrupted");
    await client.query("select pg_advisory_unlock_all()");
    // The next one fails before its rows: those of the first one may be there all the same.
    await client.query(
      `create function refuse() returns event_trigger language plpgsql as $$ begin raise 'no tables'; end $$;
       create event trigger refuse on ddl_command_start execute function refuse()`,
    );
    await expect(putInto(otherUrl, file, true)).rejects.toThrow("no tables");
    await expect(takeBackUnfinished(layoutOf(other))).rejects.toThrow("may be in the database");
    await expect(requireNoUnfinishedRestore({ dataDir: other })).rejects.toThrow("was interrupted");
    await client.query("drop event trigger refuse; drop function refuse()");
    expect((await putInto(otherUrl, file, true)).rows).toBeGreaterThan(0);
    await requireNoUnfinishedRestore({ dataDir: other });
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

test("rows of before that are put back move the kept heads of the audit log aside, and only then", async () => {
  await save(join(folder, "b.tar.zst"), false);
  const [control, otherUrl] = [join(folder, "other/control"), await createEmptyDatabase()];
  await mkdir(join(control, "audit"), { recursive: true });
  await run("tar", ["--zstd", "-xf", join(folder, "b.tar.zst"), "-C", control, "database.jsonl"]);
  const rows = join(control, "rows-0017-20270301T093000123.jsonl");
  await rename(join(control, "database.jsonl"), rows);
  const heads = join(control, "audit/heads.json");
  await writeFile(heads, "of later rows");
  const child = vivThere(otherUrl, "restore-backup", "--force", rows);
  const [[code], out] = await Promise.all([once(child, "close"), text(child.stdout), text(child.stderr)]);
  const [aside = "", ...others] = await readdir(join(control, "audit"));
  expect([code, others]).toEqual([0, []]);
  expect(aside).toMatch(/^heads\.json\.before-restore-\d{14}$/);
  expect(await readFile(join(control, "audit", aside), "utf8")).toBe("of later rows");
  expect(out).toContain(`the audit log's heads of before are in ${join(control, "audit", aside)}`);

  const config = readConfig({ VIV_DATA_DIR: join(folder, "other"), DATABASE_URL: otherUrl });
  const { schema } = JSON.parse((await readFile(rows, "utf8")).split("\n", 1).join());
  await writeFile(heads, "of these rows");
  const again = () => putRows(config, rows, { keepAside: "update", unlessSchemaIs: schema });
  expect(await again()).toEqual({});
  expect(await putRows(config, rows, { keepAside: "update" })).toMatchObject({
    rows: expect.any(Number),
    heads: { aside: expect.any(String) },
  });

  // A process that died after its load left those of before in place; the service has written none since.
  await writeFile(heads, "of later rows");
  await utimes(heads, new Date(0), new Date(0));
  expect(await again()).toEqual({ aside: expect.any(String), heads: { aside: expect.any(String) } });
  const inHalfAnHour = new Date(Date.now() + 1_800_000);
  await writeFile(heads, "of these rows");
  await utimes(heads, inHalfAnHour, inHalfAnHour);
  expect(await again()).not.toHaveProperty("heads");
  expect(await readFile(heads, "utf8")).toBe("of these rows");
});

test("kept heads are not moved through a link of control's user; the rows are back all the same, and it is said", async () => {
  await save(join(folder, "b.tar.zst"), false);
  await run("tar", ["--zstd", "-xf", join(folder, "b.tar.zst"), "-C", folder, "database.jsonl"]);
  const rows = join(folder, "rows-0017-20270301T093000123.jsonl");
  await rename(join(folder, "database.jsonl"), rows);
  await mkdir(join(folder, "elsewhere"));
  await mkdir(join(folder, "other/control"), { recursive: true });
  await writeFile(join(folder, "elsewhere/heads.json"), "of root");
  await symlink(join(folder, "elsewhere"), join(folder, "other/control/audit"));
  const otherUrl = await createEmptyDatabase();
  const { code, err } = await endOf(vivThere(otherUrl, "restore-backup", "--force", rows));
  expect(code).not.toBe(0);
  expect(err).toMatch(/put \d+ rows back; .*heads\.json has heads of the audit log.*ENOTDIR/);
  expect(await readdir(join(folder, "elsewhere"))).toEqual(["heads.json"]);
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
