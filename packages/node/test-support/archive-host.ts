/** A node's pool and images with small files, in a directory of a test, and what packs and unpacks its saved states. */
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { link, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { PassThrough } from "node:stream";
import type { ChunkStore } from "@vivarium/archive/chunk-store";
import { serveChunks } from "@vivarium/archive/serve-chunks";
import { UnusableArchive } from "@vivarium/archive/unusable-archive";
import { type Packed, PackResult, type SnapshotStatus, UnpackResult } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { createLog } from "@vivarium/kit/log";
import { expect } from "vitest";
import { type Accepted, Archives, type Keys } from "../src/archives/archives.ts";
import { idOfBaseline } from "../src/snapshots/baseline-id.ts";
import { Baselines } from "../src/snapshots/baselines.ts";
import { describeSnapshot } from "../src/snapshots/describe-snapshot.ts";
import { describeFiles, publishManifest, readManifest } from "../src/snapshots/manifest.ts";
import { PAGE_BYTES, sumMemory } from "../src/snapshots/page-sums.ts";
import { SumsThread } from "../src/snapshots/sums-thread.ts";
import { SnapshotTable } from "../src/snapshots/table.ts";
import { makeLoadable, QEMU } from "./loadable.ts";

const log = createLog("test", "silent");
const PAGES = 64;

export class ArchiveHost implements AsyncDisposable {
  readonly dir = mkdtempSync(path.join(tmpdir(), "archive-host-"));
  readonly imagesDir = path.join(this.dir, "images");
  readonly baselineDir = path.join(this.imagesDir, "templates/base/1/small");
  readonly sums = new SumsThread({ log });
  readonly snapshots = new SnapshotTable({ dataDir: this.dir, log });
  readonly baselines = new Baselines({
    ...{ imagesDir: this.imagesDir, dataDir: this.dir, qemu: QEMU, log },
  });
  readonly archives: Archives;

  constructor({ niceness = 0, crashAt }: { niceness?: number; crashAt?: string } = {}) {
    const { baselines, snapshots, dir: dataDir } = this;
    const gate = { reserve: async () => () => {} };
    this.archives = new Archives({ baselines, snapshots, gate, log, niceness, dataDir, crashAt });
  }

  /** With a baseline that no other host has. */
  static async make(options?: { niceness?: number; crashAt?: string }): Promise<ArchiveHost> {
    const host = new ArchiveHost(options);
    await host.snapshots.removeUnpublished();
    const { manifest } = await makeLoadable(host.baselineDir);
    await writeMemory(host.baselineDir, randomBytes(PAGES * PAGE_BYTES));
    const created_at = new Date().toISOString();
    const files = await describeFiles(host.baselineDir);
    await publishManifest(host.baselineDir, { ...manifest, kind: "baseline", created_at, files });
    await host.baselines.read();
    return host;
  }

  async baselineId(): Promise<string> {
    return idOfBaseline(await readManifest(this.baselineDir));
  }

  /** A snapshot whose memory differs from the baseline's in a page. Returns its id. */
  async save(): Promise<string> {
    const id = `pau_${randomId()}`;
    const dir = this.snapshots.dirOf(id);
    const { manifest } = await makeLoadable(dir);
    for (const name of ["base.raw", "layer.qcow2"]) {
      await rm(path.join(dir, name));
      await link(path.join(this.baselineDir, name), path.join(dir, name));
    }
    const memory = await readFile(path.join(this.baselineDir, "mem"));
    randomBytes(PAGE_BYTES).copy(memory, PAGE_BYTES * 2);
    await writeMemory(dir, memory);
    await publishManifest(dir, { ...manifest, files: await describeFiles(dir) });
    return id;
  }

  async status(id: string): Promise<SnapshotStatus> {
    return await describeSnapshot(this, await this.snapshots.find(id));
  }

  /** Names in the folder of the saved states. */
  async folders(): Promise<string[]> {
    return (await readdir(path.join(this.dir, "pool/s"))).toSorted();
  }

  async pack(space: TestSpace, id: string, base?: string): Promise<PackResult | undefined> {
    const query = { archive_id: space.archiveId, base };
    const last = await serve(space.store, await this.archives.pack(id, query, space.keys));
    return last === undefined ? undefined : PackResult.parse(last);
  }

  async mustPack(space: TestSpace, id: string, base?: string): Promise<Packed> {
    const result = await this.pack(space, id, base);
    expect(result).toMatchObject({ packed: {} });
    return (result as { packed: Packed }).packed;
  }

  async unpack(
    space: TestSpace,
    id: string,
    { contents, base }: { contents: string; base?: string | undefined },
  ): Promise<UnpackResult | undefined> {
    const query = { archive_id: space.archiveId, base, contents };
    const last = await serve(space.store, await this.archives.unpack(id, query, space.keys));
    return last === undefined ? undefined : UnpackResult.parse(last);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.archives.close();
    await this.sums.close();
    if (existsSync(this.dir)) rmSync(this.dir, { recursive: true });
  }
}

/** A place for chunks of one archive's space, in memory. A test holds or counts its calls. */
export class TestSpace {
  readonly archiveId = `arc_${randomId()}`;
  readonly keys: Keys = { key: newSecret(), secret: newSecret() };
  readonly objects = new Map<string, Buffer>();
  /** Runs before each call. */
  onAsk: (name: string) => Promise<void> | void = () => {};
  readonly store: ChunkStore = {
    names: () => this.#names(),
    put: async (name, bytes) => {
      await this.onAsk(name);
      this.objects.set(name, Buffer.from(bytes));
    },
    get: async (name) => {
      await this.onAsk(name);
      const found = this.objects.get(name);
      if (found) return found;
      throw new UnusableArchive("missing", `the store has no object ${name}`);
    },
  };

  async *#names(): AsyncGenerator<string> {
    await this.onAsk("names");
    yield* this.objects.keys();
  }
}

const newSecret = () => randomBytes(32).toString("base64url");

async function writeMemory(dir: string, content: Buffer): Promise<void> {
  const file = path.join(dir, "mem");
  await writeFile(file, content);
  await writeFile(path.join(dir, "mem.sums"), (await sumMemory(file, content.length)).toBytes());
}

/** The part of the caller. Returns the last frame, or undefined if the answer was broken off. */
async function serve(store: ChunkStore, accepted: Accepted): Promise<unknown> {
  const [asks, answers] = [new PassThrough(), new PassThrough()];
  const serving = serveChunks(store, asks, answers).catch(() => undefined);
  await accepted({ asks, answers });
  const last = await serving;
  answers.end();
  return last && JSON.parse(String(last));
}
