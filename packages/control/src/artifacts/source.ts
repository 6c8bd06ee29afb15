/** The guest that an artifact is captured from: a session's present machine, or the last one of a session that has ended. */
import type { IncomingMessage } from "node:http";
import { LIMITS } from "@vivarium/contract/api";
import { LISTS } from "@vivarium/contract/guest";
import { apiErrorOfNode } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { openGuest } from "../guest/call-guest.ts";
import { isMachineMoved } from "../guest/use-machine.ts";
import { machineIdOf } from "../sessions/state.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import type { ArtifactDeps } from "./deps.ts";
import { globsOf } from "./patterns.ts";
import type { ArtifactRow } from "./store.ts";

/** The capture has failed for a reason that a caller can read, and that no further attempt would change. */
export class CaptureRefused extends Error {}

export interface Found {
  /** Relative to /workspace. */
  path: string;
  bytes: number;
}

export interface OpenFile {
  sizeBytes: number;
  content: AsyncIterable<Buffer>;
  /** Whether reading failed on the guest's side. */
  hasBroken(): boolean;
  release(): void;
}

export interface Source {
  /** Regular files that any of the paths matches, each once, in the order of their paths. At most one more than the cap. */
  match(paths: readonly string[], signal: AbortSignal): Promise<Found[]>;
  /** Undefined for what is no file that can be read. */
  open(path: string, signal: AbortSignal): Promise<OpenFile | undefined>;
}

/** Codes of a file that has gone, or has become something else, since it was found. */
const NOT_A_FILE: ReadonlySet<string> = new Set([
  "no_such_file",
  "parent_not_a_directory",
  "not_a_directory",
  "is_a_directory",
  "not_a_regular_file",
  "permission_denied",
  "outside_workspace",
  "bad_path",
]);

/** Makes a call to a machine. `release` ends the activity that keeps the session from idling. */
type Use = <T>(call: (machineId: string) => Promise<T>) => Promise<{ result: T; release: () => void }>;

export async function sourceOf(deps: ArtifactDeps, artifact: ArtifactRow): Promise<Source> {
  const session = await findSessionById(deps.db, artifact.session_id);
  if (!session) throw new CaptureRefused("the session is gone");
  const use = artifact.cause === "teardown" ? ofEnded(session) : ofCurrent(deps, session);
  return {
    match: (paths, signal) => matchAll(deps, use, paths, signal),
    open: (path, signal) => openFile(deps, use, path, signal),
  };
}

function ofCurrent(deps: ArtifactDeps, session: SessionRow): Use {
  if (session.state === "destroyed")
    throw new CaptureRefused("the session was destroyed before its files were copied");
  const scope = { orgId: session.org_id, projectId: null };
  return (call) => openGuest(deps, scope, session.id, (live) => call(machineIdOf(live)));
}

function ofEnded(session: SessionRow): Use {
  return async (call) => {
    try {
      return { result: await call(machineIdOf(session)), release: () => {} };
    } catch (error) {
      if (error instanceof NodeError && isMachineMoved(error))
        throw new CaptureRefused("the session's machine was not running any more", { cause: error });
      throw error instanceof NodeError ? apiErrorOfNode(error) : error;
    }
  };
}

async function matchAll(
  { nodes }: ArtifactDeps,
  use: Use,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<Found[]> {
  const found = new Map<string, Found>();
  for (const pattern of new Set(paths.flatMap(globsOf))) {
    const query = { pattern, max_results: LIMITS.artifactFiles + 1 };
    const call = { method: "GET", path: "files/match", query, signal } as const;
    const { result, release } = await use((machineId) => nodes.guestList(machineId, call, LISTS.files));
    release();
    if (result.end.truncated)
      throw new CaptureRefused(`${pattern} matches more files than a capture can look through`);
    for (const file of result.items) if (isPlain(file.path)) found.set(file.path, file);
    if (found.size > LIMITS.artifactFiles) break;
  }
  return [...found.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
}

/** The guest is not believed: a name that could lead elsewhere on the caller's side is left out. */
function isPlain(path: string): boolean {
  const parts = path.split("/");
  return !path.includes("\0") && parts.every((part) => part !== "" && part !== "." && part !== "..");
}

async function openFile(
  { nodes }: ArtifactDeps,
  use: Use,
  path: string,
  signal: AbortSignal,
): Promise<OpenFile | undefined> {
  const query = { path, plain: true };
  const call = { method: "GET", path: "files/read", query, signal } as const;
  const { result: content, release } = await use((machineId) =>
    nodes.guest(machineId, call).catch((error: unknown) => {
      if (error instanceof NodeError && NOT_A_FILE.has(error.code ?? "")) return undefined;
      throw error;
    }),
  );
  if (content) return opened(content, release);
  release();
  return undefined;
}

function opened(content: IncomingMessage, release: () => void): OpenFile {
  const sizeBytes = Number(content.headers["content-length"]);
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
    content.destroy();
    release();
    throw new NodeError("garbled", "the node does not say how long the file is");
  }
  let hasBroken = false;
  return {
    sizeBytes,
    content: readExactly(content, sizeBytes, () => {
      hasBroken = true;
    }),
    hasBroken: () => hasBroken,
    release: () => {
      content.destroy();
      release();
    },
  };
}

/** Fails if the bytes end early: a short file never looks whole. */
async function* readExactly(
  content: IncomingMessage,
  sizeBytes: number,
  onBreak: () => void,
): AsyncGenerator<Buffer> {
  let left = sizeBytes;
  const iterator = content.iterator({ destroyOnReturn: false });
  for (;;) {
    const next = await iterator.next().catch((cause: unknown) => {
      onBreak();
      throw new NodeError("broken", "a file kept changing while it was read", { cause });
    });
    if (next.done) break;
    left -= (next.value as Buffer).length;
    yield next.value as Buffer;
  }
  if (left === 0) return;
  onBreak();
  throw new NodeError("broken", "a file kept changing while it was read");
}
