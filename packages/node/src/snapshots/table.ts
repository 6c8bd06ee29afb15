/** The snapshots of this node: published folders below the pool, and those that are being made. */
import { existsSync } from "node:fs";
import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import type { SnapshotSpec, SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { NodeError } from "../node-error.ts";
import { type Loadable, type Manifest, manifestPath, readManifest, UnusableSnapshot } from "./manifest.ts";

export class SnapshotTable {
  readonly #dir: string;
  readonly #log: Log;
  readonly saving = new Map<string, { spec: SnapshotSpec; done: Promise<Loadable> }>();

  constructor(init: { dataDir: string; log: Log }) {
    this.#dir = path.join(init.dataDir, "pool/s");
    this.#log = init.log;
  }

  dirOf(id: string): string {
    return path.join(this.#dir, id);
  }

  /** At start: what was never published belongs to nobody. */
  async removeUnpublished(): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o711 });
    for (const id of await readdir(this.#dir)) {
      if (existsSync(manifestPath(this.dirOf(id)))) continue;
      this.#log.info({ snapshot: id }, "removing a snapshot that was never finished");
      await rm(this.dirOf(id), { recursive: true, force: true });
    }
  }

  async find(id: string): Promise<Loadable> {
    const found = await this.#published(id);
    if (found) return found;
    throw new NodeError("snapshot_not_found", `no snapshot ${id} on this node`);
  }

  async get(id: string): Promise<Loadable | undefined> {
    return await this.#published(id);
  }

  async list(): Promise<SnapshotStatus[]> {
    const ids = await readdir(this.#dir).catch(() => []);
    // One that is damaged is none that could be used; asking for it by its name says what is wrong with it.
    const published = await Promise.all(
      ids.map(async (id) => ({ id, found: await this.#published(id).catch(() => undefined) })),
    );
    return published.flatMap(({ id, found }) => (found ? [statusOf(id, found.manifest)] : []));
  }

  /** From the manifest's removal on it is no snapshot any more, whatever is left of the folder. */
  async remove(id: string): Promise<void> {
    await this.saving.get(id)?.done.catch(() => {});
    await rm(manifestPath(this.dirOf(id)), { force: true });
    await rm(this.dirOf(id), { recursive: true, force: true });
  }

  /** A file of it is missing: it was deleted while it was being used, manifest first, or else it is damaged. */
  gone(source: Loadable, cause: Error): Error {
    if (existsSync(manifestPath(source.dir))) return this.unloadable(source, cause);
    return new NodeError("snapshot_not_found", `no snapshot ${path.basename(source.dir)} on this node`, {
      cause,
    });
  }

  /** A saved state that does not verify; the files stay as they are. Any other failure says nothing about them. */
  unloadable(source: Loadable, cause: Error): Error {
    const isMissing = (cause as NodeJS.ErrnoException).code === "ENOENT";
    if (!(cause instanceof UnusableSnapshot) && !isMissing) return cause;
    this.#log.error({ snapshot: path.basename(source.dir), err: cause }, "a snapshot cannot be loaded");
    return new NodeError("snapshot_damaged", `the saved state cannot be used: ${cause.message}`, { cause });
  }

  async #published(id: string): Promise<Loadable | undefined> {
    const dir = this.dirOf(id);
    try {
      return { dir, manifest: await readManifest(dir) };
    } catch (cause) {
      // Whatever else is wrong with a manifest, it was published once and is not thrown away.
      if ((cause as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      this.#log.error({ snapshot: id, err: cause }, "a manifest cannot be read");
      throw new NodeError("snapshot_damaged", "the saved state cannot be used: its manifest is damaged", {
        cause,
      });
    }
  }
}

export function statusOf(id: string, manifest: Manifest): SnapshotStatus {
  return {
    snapshot_id: id,
    state: "ready",
    template: manifest.template,
    size: manifest.size,
    bytes: manifest.own_bytes,
    created_at: manifest.created_at,
    timings: manifest.timings,
  };
}
