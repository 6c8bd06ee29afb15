/**
 * Archives of the fake node: a snapshot's files as one tar file, packed and unpacked as the real node does with its folders. A
 * baseline has bytes of its own, which no other fake node has.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { packFolder } from "@vivarium/archive/pack";
import { RelayedChunks } from "@vivarium/archive/relayed-chunks";
import { unpackFolder } from "@vivarium/archive/unpack";
import { UnusableArchive } from "@vivarium/archive/unusable-archive";
import {
  ARCHIVE_KEY_HEADER,
  type ArchiveRefusal,
  ArchiveSecretText,
  PackQuery,
  type PackResult,
  SPACE_SECRET_HEADER,
  UnpackQuery,
  type UnpackResult,
} from "@vivarium/contract/node";
import { bodyOfRefusal, Refusal, valid } from "./refusal.ts";
import { type FakeSnapshot, findSnapshot, snapshotId, statusOf } from "./snapshots.ts";
import type { NodeState } from "./state.ts";

const run = promisify(execFile);
const STAGED_FILES = ["snapshot.json", "files.tar"];
/** A baseline is larger than what differs from it. */
const BASELINE_BYTES = 300_000;

interface ArchiveCall {
  action: "pack" | "unpack";
  id: string;
  query: URLSearchParams;
  request: IncomingMessage;
  response: ServerResponse;
}

/** A pack or an unpack that runs. */
export interface Archiving {
  done: Promise<void>;
  end: () => void;
}

interface Work {
  state: NodeState;
  id: string;
  archiveId: string;
  base: { dir: string; id: string } | undefined;
  key: Uint8Array;
  space: { store: RelayedChunks; secret: Uint8Array };
  signal: AbortSignal;
}

export async function serveArchive(state: NodeState, call: ArchiveCall): Promise<void> {
  const { action, request, response } = call;
  const id = snapshotId(call.id);
  const key = secretIn(request, ARCHIVE_KEY_HEADER);
  const secret = secretIn(request, SPACE_SECRET_HEADER);
  const raw = Object.fromEntries(call.query);
  const query = action === "pack" ? valid(PackQuery.safeParse(raw)) : valid(UnpackQuery.safeParse(raw));
  if (action === "pack") findState(state, id);
  const base = query.base === undefined ? undefined : await baseOf(state, query.base);
  if (action === "unpack" && state.info.has_disk_room === false)
    throw new Refusal("disk_pressure", "not enough free disk");

  const gone = new AbortController();
  response.once("close", () => gone.abort());
  response.writeHead(200, { "content-type": "application/octet-stream" }).flushHeaders();
  const store = new RelayedChunks(response, request);
  const work = {
    state,
    id,
    archiveId: query.archive_id,
    base,
    key,
    space: { store, secret },
    signal: gone.signal,
  };
  const done = oneAtATime(
    state,
    id,
    () => gone.abort(),
    async () => {
      if ("contents" in query) return await unpack(work, query.contents as string);
      return await pack(work);
    },
  );
  const result: PackResult | UnpackResult = await done.catch((error: unknown) => ({
    refused: refusalOf(error),
  }));
  if (response.destroyed) return;
  // It fails if the caller has left.
  await store.finish(result).catch(() => undefined);
  response.end();
}

async function pack({ state, id, archiveId, base, key, space, signal }: Work): Promise<PackResult> {
  await unlessAborted(signal, state.onPack(id));
  const source = { dir: await stage(state, id), files: STAGED_FILES, ...(base && { base }) };
  const packed = await packFolder(space, { key, label: archiveId }, source, { signal });
  return {
    packed: {
      contents: packed.contents,
      chunks: packed.chunks,
      differing_bytes: packed.differing,
      sent_bytes: packed.sent,
    },
  };
}

async function unpack(work: Work, contents: string): Promise<UnpackResult> {
  const { state, id, archiveId, base, key, space, signal } = work;
  await unlessAborted(signal, state.onUnpack(id));
  if (isBaseline(state, id)) return { unpacked: statusOf(state, findState(state, id)) };
  if (!state.snapshots.has(id)) {
    const staged = stagedDir(state, id);
    await rm(staged, { recursive: true, force: true });
    await mkdir(join(state.folder, "staged"), { recursive: true });
    const from = { contents, dir: staged };
    await unpackFolder(space, { key, label: archiveId }, from, { signal, ...(base && { base }) });
    const about = JSON.parse(await readFile(join(staged, "snapshot.json"), "utf8"));
    const dir = join(state.folder, id);
    await mkdir(dir, { recursive: true });
    await run("tar", ["-x", "-p", "-f", join(staged, "files.tar"), "-C", dir]);
    const snapshot = { ...about, snapshot_id: id, dir, placed: new Map(about.placed) };
    state.snapshots.set(id, { ...snapshot, usedAt: new Date().toISOString() });
  }
  return { unpacked: statusOf(state, findSnapshot(state, id)) };
}

/** A test's hook may wait for ever. */
async function unlessAborted(signal: AbortSignal, hook: Promise<void> | void): Promise<void> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  signal.throwIfAborted();
  await Promise.race([hook, aborted]);
}

/** The folder that is packed for a snapshot or a baseline, which never changes. Several packings may have the same base. */
async function stage(state: NodeState, id: string): Promise<string> {
  const dir = stagedDir(state, id);
  if (existsSync(dir)) return dir;
  const underWay = state.staging.get(id) ?? makeStaged(state, id).finally(() => state.staging.delete(id));
  state.staging.set(id, underWay);
  return await underWay;
}

async function makeStaged(state: NodeState, id: string): Promise<string> {
  const dir = stagedDir(state, id);
  const making = `${dir}.making`;
  await rm(making, { recursive: true, force: true });
  await mkdir(making, { recursive: true });
  const snapshot = state.snapshots.get(id) ?? baselineAs(state, id);
  const { dir: files, placed, ...about } = snapshot;
  await writeFile(join(making, "snapshot.json"), JSON.stringify({ ...about, placed: [...placed] }));
  const from = existsSync(files) ? files : await baselineFiles(state, id);
  const same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--format=gnu"];
  await run("tar", ["-c", ...same, "-f", join(making, "files.tar"), "-C", from, "."]);
  await run("mv", [making, dir]);
  return dir;
}

const stagedDir = (state: NodeState, id: string) => join(state.folder, "staged", id);

/** Ends what packs or unpacks a snapshot, and forgets what was made for that. */
export async function endArchiving(state: NodeState, id: string): Promise<void> {
  const underWay = state.archiving.get(id);
  underWay?.end();
  await underWay?.done;
  await rm(stagedDir(state, id), { recursive: true, force: true });
}

async function oneAtATime<T>(
  state: NodeState,
  id: string,
  end: () => void,
  work: () => Promise<T>,
): Promise<T> {
  while (state.archiving.has(id)) await state.archiving.get(id)?.done;
  const made = work();
  const done = made.then(
    () => undefined,
    () => undefined,
  );
  state.archiving.set(id, { done, end });
  try {
    return await made;
  } finally {
    state.archiving.delete(id);
  }
}

/** A snapshot, or a baseline of this node. */
export function findState(state: NodeState, id: string): FakeSnapshot {
  return isBaseline(state, id) ? baselineAs(state, id) : findSnapshot(state, id);
}

async function baseOf(state: NodeState, id: string): Promise<{ dir: string; id: string }> {
  if (!isBaseline(state, id) && !state.snapshots.has(id))
    throw new Refusal("base_not_found", `the base ${id} is not on this node`);
  return { dir: await stage(state, id), id };
}

/** Another node has another bake of the same template. */
export function baselineIdOf({ folder }: NodeState, template: string, size: string): string {
  const digits = createHash("sha256")
    .update(`${basename(folder)} ${template} ${size}`)
    .digest("hex");
  return `bas_${digits.slice(0, 21)}`;
}

/** The baseline of a snapshot, if it is here. */
export function presentBaseline(state: NodeState, snapshot: FakeSnapshot): string | undefined {
  const id = snapshot.baselineId;
  if (id === snapshot.snapshot_id) return undefined;
  return isBaseline(state, id) || state.snapshots.has(id) ? id : undefined;
}

function isBaseline(state: NodeState, id: string): boolean {
  return startable(state).some(({ template, size }) => baselineIdOf(state, template, size) === id);
}

function startable({ info, builds }: NodeState): { template: string; size: string }[] {
  const built = [...builds].flatMap(([template, { status }]) =>
    (status.sizes ?? []).map((size) => ({ template, size })),
  );
  return [...info.baselines, ...built];
}

function baselineAs(state: NodeState, id: string): FakeSnapshot {
  const found = startable(state).find(({ template, size }) => baselineIdOf(state, template, size) === id);
  if (!found) throw new Refusal("base_not_found", `the base ${id} is not on this node`);
  const { template, size } = found;
  return {
    snapshot_id: id,
    // No call has made it.
    spec: { snapshot_id: id },
    ...{ template, size, bytes: BASELINE_BYTES, baselineId: id },
    ...{ created_at: new Date(0).toISOString(), usedAt: undefined, timings: undefined },
    ...{ dir: join(state.folder, "no-files-of-a-baseline"), placed: new Map() },
    ...{ isUnfit: false, stateKey: undefined, memory: undefined },
  };
}

/** Files of a state that has none: only a baseline's are some. */
async function baselineFiles(state: NodeState, id: string): Promise<string> {
  const dir = join(state.folder, `files-${id}`);
  await mkdir(dir, { recursive: true });
  if (isBaseline(state, id)) {
    const block = createHash("sha256").update(id).digest();
    await writeFile(join(dir, "baseline"), Buffer.alloc(BASELINE_BYTES, block));
  }
  return dir;
}

function secretIn({ headers }: IncomingMessage, name: string): Buffer {
  const parsed = ArchiveSecretText.safeParse(headers[name]);
  if (parsed.success) return Buffer.from(parsed.data, "base64url");
  throw new Refusal("invalid", `the header ${name} does not fit the contract`);
}

function refusalOf(error: unknown): ArchiveRefusal {
  const { message } = error as Error;
  if (error instanceof UnusableArchive) return { code: "archive_unusable", reason: error.reason, message };
  if (error instanceof Refusal) return bodyOfRefusal(error);
  return { code: "archive_interrupted", message };
}
