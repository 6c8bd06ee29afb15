/**
 * Rows about states that leave their node and come back, beside `zstd` and a copy of the same bytes: of all of a saved state,
 * and of the blocks that differ from the baseline, found before. The store is a directory on the pool's disk.
 */
import { createHash } from "node:crypto";
import { createReadStream, mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { MIB } from "@vivarium/kit/sizes";
import { Client } from "@vivarium/sdk";
import { run } from "../../packages/node/src/host/run.ts";
import { filesOf, type Loadable, readManifest } from "../../packages/node/src/snapshots/manifest.ts";
import { query } from "../support/database.ts";
import { nodeCaller } from "../support/node-caller.ts";
import type { ServiceFacts } from "../support/service.ts";
import { writeChangedBlocks } from "./changed-blocks.ts";
import { percentile, type Row, row, timed } from "./samples.ts";

const WORK = ["python3", "-c", "print(sum(range(1000)))"];
const LIMIT_MS = 20 * 60_000;
/** Cleaning up after a pause must not count for a wake. */
const AFTER_PAUSE_MS = 1_000;
/** Shared by all states of a template version, and part of none. */
const SHARED = "base.raw";

export interface ArchiveEffort {
  /** Random bytes that the second kind of session has written to its disk. */
  mib: number;
  rounds: number;
}

type Keep = (name: string, value: number) => void;

export async function archiveRows(
  facts: ServiceFacts,
  baseline: Loadable,
  { mib, rounds }: ArchiveEffort,
): Promise<Row[]> {
  // The first one puts the baseline's archive into the store.
  await oneLife({ facts, baseline, mib: 0 }, () => {});
  const rows: Row[] = [];
  for (const written of [0, mib]) {
    const samples: Record<string, number[]> = {};
    for (let i = 0; i < rounds; i++) await oneLife({ facts, baseline, mib: written }, keepIn(samples));
    rows.push(...rowsOf(written === 0 ? "base session" : `session with ${written} MiB written`, samples));
  }
  return [...rows, await baselineRow(facts)];
}

/** The archive that the store has once for all sessions of the base template. */
async function baselineRow(facts: ServiceFacts): Promise<Row> {
  const found = await query(facts, "select stored_bytes from archives where kind = 'baseline'");
  const bytes = found.map(({ stored_bytes }) => Number(stored_bytes));
  return row("archive of the base template's baseline, once for all sessions", "MiB", bytes.map(inMib));
}

const inMib = (bytes: number) => bytes / MIB;

function keepIn(samples: Record<string, number[]>): Keep {
  return (name, value) => {
    samples[name] ??= [];
    samples[name].push(value);
  };
}

function rowsOf(who: string, samples: Record<string, number[]>): Row[] {
  const of = (name: string) => samples[name] ?? [];
  const p50 = (name: string) => percentile(of(name), 50);
  const over = (name: string, floor: number) => (p50(name) / floor).toFixed(2);
  const ours = (all: string, changed: string, name: string) =>
    `${over(name, p50(all))} × all of it, ${over(name, p50(changed))} × its changes`;
  const byHand = p50("warm") + p50("changed: fetch");
  return [
    row(`${who}: its state by zstd -3 and cp, synced`, "ms", of("all: store")),
    row(`${who}: its changed blocks by zstd -3 and cp, synced`, "ms", of("changed: store")),
    row(
      `${who}: archive, from the pause's answer`,
      "ms",
      of("archive"),
      ours("all: store", "changed: store", "archive"),
    ),
    row(`${who}: its state after zstd -3`, "MiB", of("all: stored").map(inMib)),
    row(`${who}: its changed blocks after zstd -3`, "MiB", of("changed: stored").map(inMib)),
    row(
      `${who}: bytes of its archive`,
      "MiB",
      of("stored").map(inMib),
      ours("all: stored", "changed: stored", "stored"),
    ),
    row(`${who}: its state by cp and zstd -d, synced`, "ms", of("all: fetch")),
    row(`${who}: its changed blocks by cp and zstd -d, synced`, "ms", of("changed: fetch")),
    row(`${who}: warm wake, to the first command`, "ms", of("warm")),
    row(
      `${who}: cold wake, to the first command`,
      "ms",
      of("cold"),
      `${over("cold", byHand)} × warm wake and fetching its changed blocks by hand`,
    ),
  ];
}

interface Life {
  facts: ServiceFacts;
  baseline: Loadable;
  mib: number;
}

async function oneLife({ facts, baseline, mib }: Life, keep: Keep): Promise<void> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const { session_id: id } = await client.sessions.create();
  const sh = (script: string) =>
    client.sessions.exec(id, { command: ["sh", "-c", script], timeout_ms: 300_000 });
  try {
    await client.sessions.exec(id, { command: WORK });
    const said = await sh(`head -c ${mib}M /dev/urandom > written && sync && sha256sum written`);
    await client.sessions.pause(id);
    keep("archive", await timed(() => untilArchived(client, id)));
    const first = await savedState(facts, id);
    keep("stored", first.stored);
    await byHand(facts, first, baseline, keep);
    keep("warm", await timed(() => client.sessions.exec(id, { command: ["true"] })));

    await client.sessions.pause(id);
    await untilArchived(client, id);
    const state = await savedState(facts, id);
    const sums = await sumsOf(state);
    await removeFromNode(facts, client, id, state);
    await sleep(AFTER_PAUSE_MS);
    keep("cold", await timed(() => client.sessions.exec(id, { command: ["true"] })));
    requireEqual("the saved state", await sumsOf(await fetchedState(facts, id, state)), sums);
    requireEqual("the session's file", (await sh("sha256sum written")).stdout, said.stdout);
  } finally {
    await client.sessions.delete(id);
  }
}

async function untilArchived(client: Client, id: string): Promise<void> {
  await until(async () => {
    const { archive } = await client.sessions.get(id);
    if (archive?.status === "failed") throw new Error(`the archive failed: ${archive.detail}`);
    return archive?.status === "complete";
  }, "the archive is not complete");
}

async function until(isSo: () => Promise<boolean>, otherwise: string): Promise<void> {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await isSo())) {
    if (Date.now() > deadline) throw new Error(`${otherwise} after ${LIMIT_MS / 60_000} minutes`);
    await sleep(50);
  }
}

interface State {
  id: string;
  dir: string;
  /** Names of its files, without those that it shares. */
  files: string[];
}

/** The state that the session's newest archive is of. */
async function savedState(facts: ServiceFacts, session: string): Promise<State & { stored: number }> {
  const [newest] = await query(
    facts,
    `select snapshot_id, stored_bytes from archives where session_id = '${session}' and kind = 'pause'
     order by created_at desc limit 1`,
  );
  if (!newest) throw new Error(`there is no archive of session ${session}`);
  const id = String(newest.snapshot_id);
  const state = await stateIn(join(facts.dataDir, "pool/s", id), id);
  return { ...state, stored: Number(newest.stored_bytes) };
}

async function stateIn(dir: string, id: string): Promise<State> {
  const names: readonly string[] = filesOf(await readManifest(dir));
  return { id, dir, files: names.filter((name) => name !== SHARED) };
}

async function removeFromNode(facts: ServiceFacts, client: Client, session: string, state: State) {
  const { status } = await nodeCaller(facts.nodeSocket).call("DELETE", `/v1/snapshots/${state.id}`);
  if (status !== 204) throw new Error(`the node did not remove ${state.id}: it answered ${status}`);
  await until(
    async () => (await client.sessions.get(session)).snapshot_tier === "cold",
    "the session is not cold",
  );
}

/** The state from which the running machine was loaded. */
async function fetchedState(facts: ServiceFacts, session: string, { id }: State): Promise<State> {
  const machines = join(facts.dataDir, "pool/m");
  const folder = readdirSync(machines).find((name) => name.startsWith(`${session}-`));
  if (folder === undefined) throw new Error(`${machines} has no machine of session ${session}`);
  return await stateIn(join(machines, folder, "parent"), id);
}

async function sumsOf({ dir, files }: State): Promise<Record<string, string>> {
  const sums: Record<string, string> = {};
  for (const name of files.toSorted()) {
    const hash = createHash("sha256");
    for await (const piece of createReadStream(join(dir, name))) hash.update(piece);
    sums[name] = hash.digest("hex");
  }
  return sums;
}

function requireEqual(what: string, found: unknown, expected: unknown): void {
  const [is, should] = [JSON.stringify(found), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${what} is not what it was: ${is}, expected ${should}`);
}

/** Stores and fetches a state with other people's programs. */
async function byHand(facts: ServiceFacts, state: State, baseline: Loadable, keep: Keep): Promise<void> {
  const folder = join(facts.dataDir, "by-hand");
  mkdirSync(folder);
  try {
    const changed = join(folder, "changed");
    await writeChangedBlocks(state, baseline.dir, changed);
    const all = state.files.map((name) => join(state.dir, name));
    for (const [name, files] of [
      ["all", all],
      ["changed", [changed]],
    ] as const) {
      const made = await storeAndFetch(join(folder, name === "all" ? "a" : "c"), files);
      keep(`${name}: store`, made.storeMs);
      keep(`${name}: fetch`, made.fetchMs);
      keep(`${name}: stored`, made.bytes);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function storeAndFetch(folder: string, files: readonly string[]) {
  for (const name of ["packed", "stored", "fetched", "unpacked"])
    mkdirSync(join(folder, name), { recursive: true });
  const at = (place: string, number: number) => join(folder, place, String(number));
  const zstd = (...args: string[]) => run("zstd", ["-q", "--no-progress", ...args]);
  const storeMs = await timed(async () => {
    for (const [number, file] of files.entries()) {
      await zstd("-3", file, "-o", at("packed", number));
      await run("cp", [at("packed", number), at("stored", number)]);
      await syncFile(at("stored", number));
    }
  });
  const fetchMs = await timed(async () => {
    for (const number of files.keys()) {
      await run("cp", [at("stored", number), at("fetched", number)]);
      await zstd("-d", at("fetched", number), "-o", at("unpacked", number));
      await syncFile(at("unpacked", number));
    }
  });
  for (const [number, file] of files.entries()) await run("cmp", [file, at("unpacked", number)]);
  return { storeMs, fetchMs, bytes: bytesIn(join(folder, "stored")) };
}

async function syncFile(path: string): Promise<void> {
  await using handle = await open(path, "r+");
  await handle.sync();
}

/** Bytes of all files below a folder. */
function bytesIn(folder: string): number {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
}
