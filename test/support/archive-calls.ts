/** The part of control in packing and unpacking a saved state: calls of contract/node that ask back, over a store of chunks. */
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import {
  ARCHIVE_KEY_HEADER,
  type Packed,
  PackResult,
  SPACE_SECRET_HEADER,
  UnpackResult,
} from "@vivarium/contract/node";
import { expect } from "vitest";
import type { ChunkStore } from "../../packages/archive/src/chunk-store.ts";
import { serveChunks } from "../../packages/archive/src/serve-chunks.ts";
import { UnusableArchive } from "../../packages/archive/src/unusable-archive.ts";
import type { NodeCaller } from "./node-caller.ts";

/** Keeps chunks in memory, and counts the asks. */
export class ChunksInMemory implements ChunkStore {
  readonly objects = new Map<string, Buffer>();
  asks = 0;
  onPut: (name: string) => Promise<void> | void = () => undefined;

  async *names(): AsyncGenerator<string> {
    this.asks++;
    yield* this.objects.keys();
  }

  async put(name: string, bytes: Uint8Array): Promise<void> {
    this.asks++;
    await this.onPut(name);
    if (!this.objects.has(name)) this.objects.set(name, Buffer.from(bytes));
  }

  async get(name: string): Promise<Buffer> {
    this.asks++;
    const found = this.objects.get(name);
    if (found) return found;
    throw new UnusableArchive("missing", `the store has no object ${name}`);
  }
}

/** Archives that share chunks. */
export class Space {
  readonly store: ChunkStore;
  readonly secret = newSecret();

  constructor(store: ChunkStore) {
    this.store = store;
  }
}

export const newSecret = () => randomBytes(32).toString("base64url");

interface Asked {
  space: Space;
  snapshotId: string;
  archiveId: string;
  key: string;
  base?: string | undefined;
}

type Refused = { refused: { code: string; reason?: string | undefined; message: string } };
type Caller = Pick<NodeCaller, "begin">;

export async function pack(
  node: Caller,
  asked: Asked,
  signal?: AbortSignal,
): Promise<Refused | { packed: Packed }> {
  const answer = await ask(node, "pack", asked, {}, signal);
  return "refused" in answer ? answer : PackResult.parse(answer.result);
}

export async function unpack(
  node: Caller,
  asked: Asked & { contents: string },
  signal?: AbortSignal,
): Promise<Refused | Exclude<UnpackResult, { refused: unknown }>> {
  const answer = await ask(node, "unpack", asked, { contents: asked.contents }, signal);
  return "refused" in answer ? answer : UnpackResult.parse(answer.result);
}

export async function mustPack(node: Caller, asked: Asked): Promise<Packed> {
  const answer = await pack(node, asked);
  expect(answer).toMatchObject({ packed: {} });
  return (answer as { packed: Packed }).packed;
}

async function ask(
  node: Caller,
  action: "pack" | "unpack",
  { space, snapshotId, archiveId, key, base }: Asked,
  more: Record<string, string>,
  signal?: AbortSignal,
): Promise<Refused | { result: unknown }> {
  const query = new URLSearchParams({ archive_id: archiveId, ...(base && { base }), ...more });
  const call = node.begin("POST", `/v1/snapshots/${snapshotId}/${action}?${query}`, {
    "content-type": "application/octet-stream",
    [ARCHIVE_KEY_HEADER]: key,
    [SPACE_SECRET_HEADER]: space.secret,
  });
  signal?.addEventListener("abort", () => call.destroy());
  const [response] = (await once(call, "response")) as [IncomingMessage];
  if (response.statusCode !== 200) {
    call.end();
    return { refused: JSON.parse(await text(response)) };
  }
  const last = await serveChunks(space.store, response, call, signal);
  call.end();
  expect(last).toBeDefined();
  return { result: JSON.parse(String(last)) };
}
