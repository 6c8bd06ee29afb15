/** How much is taken by what is stored, and the check of it, with the real programs of control and node, on real files and rows. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmod,
  link,
  mkdir,
  mkdtemp,
  open,
  readdir,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { randomId } from "@vivarium/kit/id";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Control, eventually, KEKS, startControl } from "../packages/control/test-support/control.ts";
import { publishManifest } from "../packages/node/src/snapshots/manifest.ts";
import { makeLoadable } from "../packages/node/test-support/loadable.ts";

const MAIN = join(import.meta.dirname, "../packages/cli/src/main.ts");
const PAGE_BYTES = 4096;
let control: Control;
let dataDir: string;
let session: string;
let org: string;
beforeAll(async () => {
  control = await startControl();
  session = await control.createLive({ name: "held" });
  org = (await control.sql.query("select org_id from sessions where id = $1", [session])).rows[0].org_id;
});
afterAll(async () => {
  await control.destroyAll();
  await control.close();
});
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "viv-storage-"));
  for (const dir of ["control", "pool/s", "pool/v", "pool/m", "pool/images/templates"])
    await mkdir(join(dataDir, dir), { recursive: true });
});
afterEach(async () => {
  await control.sql.query("delete from checkpoints");
  await control.sql.query("delete from volumes");
  await rm(dataDir, { recursive: true, force: true });
});

async function viv(...argv: string[]): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(process.execPath, ["--no-warnings", MAIN, "storage", ...argv], {
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...process.env,
      DATABASE_URL: control.settings.databaseUrl,
      VIV_DATA_DIR: dataDir,
      VIV_OBJECTS_DIR: join(control.settings.controlDir, "objects"),
      VIV_CONTROL_USER: "root",
      VIV_KEK: KEKS,
      // The tests beside this one would leave it next to nothing of the processors.
      VIV_STORAGE_NICENESS: "0",
    },
  });
  const [[code], out, err] = await Promise.all([
    once(child, "close"),
    text(child.stdout),
    text(child.stderr),
  ]);
  return { code, out, err };
}

async function check(...argv: string[]) {
  const { code, out } = await viv("check", "--json", ...argv);
  return { code, ...JSON.parse(out) };
}

async function addCheckpoint(): Promise<{ id: string; dir: string }> {
  const id = `chk_${randomId()}`;
  const { dir, manifest } = await makeLoadable(join(dataDir, "pool/s", id));
  await publishManifest(dir, manifest);
  await control.sql.query(
    `insert into checkpoints (id, org_id, session_id, name, size_bytes, size, template, egress, no_sudo)
       values ($1, $2, $3, $1, 7, 'small', 'base', '{"mode":"allow","allow":[]}', false)`,
    [id, org, session],
  );
  return { id, dir };
}

async function addVolume(): Promise<{ id: string; dir: string }> {
  const id = `vol_${randomId()}`;
  const dir = join(dataDir, "pool/v", id);
  await mkdir(dir);
  await writeFile(join(dir, "image"), "content");
  await truncate(join(dir, "image"), 1024 ** 3);
  await control.sql.query("insert into volumes (id, org_id, size_gb, state) values ($1, $2, 1, 'ready')", [
    id,
    org,
  ]);
  return { id, dir };
}

async function addArtifact(files: Record<string, string>): Promise<{ id: string; dir: string }> {
  for (const [path, content] of Object.entries(files))
    await control.ask(`PUT /v1/sessions/${session}/files`, { body: { path, content } });
  const { body } = await control.ask(`POST /v1/sessions/${session}/artifacts`, {
    body: { paths: Object.keys(files) },
  });
  await eventually(async () => {
    const { body: found } = await control.ask(`GET /v1/artifacts/${body.id}`);
    expect(found.status).toBe("ready");
  }, 30_000);
  return {
    id: body.id,
    dir: join(control.settings.controlDir, "objects/objects", org, "artifacts", body.id),
  };
}

async function flip(file: string, offset: number): Promise<void> {
  const { atime, mtime } = await stat(file);
  await using handle = await open(file, "r+");
  const { buffer } = await handle.read(Buffer.alloc(1), 0, 1, offset);
  await handle.write(Buffer.from([(buffer[0] ?? 0) ^ 1]), 0, 1, offset);
  // As a failing disk does it.
  await utimes(file, atime, mtime);
}

test("of what is whole, everything is read, and nothing is damaged", async () => {
  await addCheckpoint();
  await addVolume();
  const { id } = await addArtifact({ a: "content of a", b: "content of b" });
  const { code, ok, checked, bytes, damaged } = await check();
  expect({ code, ok, checked, damaged }).toEqual({
    code: 0,
    ok: true,
    checked: { snapshot: 1, volume: 1, baseline: 0, artifact: 1, archive: 0 },
    damaged: [],
  });
  expect(bytes).toBeGreaterThan(4 * PAGE_BYTES);
  const plain = await viv("check");
  expect(plain).toMatchObject({
    code: 0,
    out: expect.stringMatching(
      /^1 saved state, 0 baselines, 1 volume, 1 artifact, 0 archives read \(.*\): nothing is damaged\n$/,
    ),
  });
  await control.ask(`DELETE /v1/artifacts/${id}`);
});

/** Two runs of the program, over a dozen saved states. */
const LONG_MS = 180_000 * SLOWNESS;

const DAMAGES: [what: string, damage: (dir: string) => Promise<void>, found: string][] = [
  ["memory", (dir) => flip(join(dir, "mem"), PAGE_BYTES + 5), "page 1 of the memory is damaged"],
  ["state", (dir) => flip(join(dir, "state"), 1), "state is damaged"],
  ["disk", (dir) => flip(join(dir, "disk.qcow2"), 1), "disk.qcow2 is damaged"],
  ["cut", (dir) => truncate(join(dir, "layer.qcow2"), 1), "layer.qcow2 has 1 bytes of 11"],
  ["lost", (dir) => rm(join(dir, "state")), "state is missing"],
  ["manifest", (dir) => writeFile(join(dir, "manifest.json"), "{"), "its manifest is missing or damaged"],
  ["sums", (dir) => flip(join(dir, "mem.sums"), 9), "mem.sums is damaged"],
];

test(
  "every kind of damage of a checkpoint is found, with whose it is, and a whole one is not named",
  async () => {
    await addCheckpoint();
    const expected = new Map<string, string>();
    for (const [, damage, found] of DAMAGES) {
      const { id, dir } = await addCheckpoint();
      for (const name of await readdir(dir)) await chmod(join(dir, name), 0o600);
      await damage(dir);
      expected.set(id, found);
    }
    // The row of this one is gone.
    const { id: nobodys, dir } = await addCheckpoint();
    await control.sql.query("delete from checkpoints where id = $1", [nobodys]);
    await flip(join(dir, "state"), 0);
    const { code, damaged } = await check();
    expect(code).toBe(1);
    expect(damaged).toHaveLength(expected.size + 1);
    for (const [id, found] of expected)
      expect(damaged).toContainEqual({
        kind: "snapshot",
        id,
        damages: expect.arrayContaining([found]),
        of: { kind: "checkpoint", id, name: id, org_id: org, session_id: session },
      });
    expect(damaged).toContainEqual({ kind: "snapshot", id: nobodys, damages: ["state is damaged"] });
    const { code: same, out } = await viv("check");
    expect(same).toBe(1);
    const [first = ""] = expected.keys();
    expect(out).toContain(
      `damaged: saved state ${first} (${first}), session ${session}, organisation ${org}\n`,
    );
    expect(out).toContain(`${nobodys}, which no row of the database names`);
  },
  LONG_MS,
);

test("a damaged and a lost object of an artifact are found, with the files that need them", async () => {
  const whole = await addArtifact({ whole: "whole" });
  const { id, dir } = await addArtifact({ one: "one", two: "two", same: "two", three: "three" });
  const names = await readdir(dir);
  expect(names).toHaveLength(3);
  const { rows } = await control.sql.query(
    "select path, encode(pieces, 'hex') as piece from artifact_files where artifact_id = $1",
    [id],
  );
  const objectOf = (path: string) => join(dir, `${rows.find((row) => row.path === path).piece}@`);
  await flip(objectOf("two"), 20);
  await rm(objectOf("three"));
  const { code, damaged, checked } = await check();
  expect([code, checked.artifact]).toEqual([1, 2]);
  expect(damaged).toMatchObject([{ kind: "artifact", id, of: { kind: "artifact", session_id: session } }]);
  expect(damaged[0].damages.toSorted()).toEqual([
    expect.stringMatching(/^same: the sealed values .* cannot be opened/),
    expect.stringMatching(/^three: a piece of .* is gone/),
    expect.stringMatching(/^two: the sealed values .* cannot be opened/),
  ]);
  for (const one of [whole.id, id]) await control.ask(`DELETE /v1/artifacts/${one}`);
  await eventually(async () => expect(await readdir(dirname(dir)).catch(() => [])).toEqual([]));
});

test("a rate bounds how fast is read, and is a number", async () => {
  const { dir } = await addVolume();
  await writeFile(join(dir, "image"), Buffer.alloc(2 * 1024 ** 2, 1));
  expect(await check("--rate", "1")).toMatchObject({ code: 0, bytes: 2 * 1024 ** 2 });
  expect((await viv("check", "--rate", "fast")).code).toBe(2);
});

async function addSession(state: "live" | "paused"): Promise<string> {
  const id = await control.createLive({ name: `n-${randomId(6)}` });
  if (state === "paused") await control.ask(`POST /v1/sessions/${id}/pause`);
  return id;
}

test("what is taken is said of each session, checkpoint, volume and artifact, with what is shared", async () => {
  const checkpoint = await addCheckpoint();
  const volume = await addVolume();
  const artifact = await addArtifact({ file: randomBytes(100_000).toString("base64") });
  const paused = await addSession("paused");
  const { rows } = await control.sql.query("select snapshot_id from sessions where id = $1", [paused]);
  const state = join(dataDir, "pool/s", rows[0].snapshot_id);
  const { dir, manifest } = await makeLoadable(state);
  await publishManifest(dir, manifest);
  const machine = join(dataDir, "pool/m", `${session}-1`);
  await mkdir(machine);
  await writeFile(join(machine, "disk.qcow2"), randomBytes(64 * 1024));
  // A machine has further names of the files that it was loaded from.
  await mkdir(join(machine, "parent"));
  await link(join(checkpoint.dir, "mem"), join(machine, "parent/mem"));
  // And one of the volume that it has, which is no part of it.
  await writeFile(join(volume.dir, "image"), randomBytes(1024 ** 2));
  await link(join(volume.dir, "image"), join(machine, "volume"));
  await mkdir(join(dataDir, "pool/s", `chk_${randomId()}`));
  const nobody = `chk_${randomId()}`;
  const left = await makeLoadable(join(dataDir, "pool/s", nobody));
  await publishManifest(left.dir, left.manifest);
  const { code, out, err } = await viv("--json");
  expect([code, err]).toEqual([0, ""]);
  const { stored, disk } = JSON.parse(out);
  // biome-ignore lint/suspicious/noExplicitAny: what the tests read is asserted by them.
  const of = (id: string): any => stored.find((one: { id: string }) => one.id === id);
  const memBytes = (await stat(join(checkpoint.dir, "mem"))).blocks * 512;
  expect(of(session)).toMatchObject({ kind: "session", name: "held", state: "live", org_id: org });
  expect(of(session).bytes).toBeGreaterThanOrEqual(64 * 1024 + memBytes);
  expect(of(session).bytes).toBeLessThan(1024 ** 2);
  expect(of(session).shared_bytes).toBe(memBytes);
  expect(of(checkpoint.id)).toMatchObject({
    kind: "checkpoint",
    session_id: session,
    shared_bytes: memBytes,
  });
  expect(of(volume.id)).toMatchObject({ kind: "volume", session_id: null, shared_bytes: 0 });
  expect(of(volume.id).bytes).toBeGreaterThanOrEqual(1024 ** 2);
  expect(of(paused)).toMatchObject({ kind: "session", state: "paused" });
  expect(of(paused).bytes).toBeGreaterThan(0);
  expect(of(artifact.id)).toMatchObject({ kind: "artifact", session_id: session });
  expect(of(artifact.id).bytes).toBeGreaterThan(90_000);
  expect(of(nobody)).toMatchObject({ kind: "unnamed", state: "snapshot", name: null });
  expect(disk.bytes).toBeGreaterThan(disk.free_bytes);

  const table = await viv();
  expect(table.code).toBe(0);
  for (const text of [
    /^KIND +COUNT +ON DISK +SHARED +ITS OWN$/m,
    /^session +2 /m,
    /^volume +1 /m,
    "SHARED",
    "held",
  ])
    expect(table.out).toEqual(
      typeof text === "string" ? expect.stringContaining(text) : expect.stringMatching(text),
    );
  await control.ask(`DELETE /v1/sessions/${paused}`);
  await control.ask(`DELETE /v1/artifacts/${artifact.id}`);
});
