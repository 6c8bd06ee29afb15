/** The snapshots of this node, which are published folders below the pool, and those being made. */
import { existsSync } from "node:fs";
import { mkdir, readdir, stat, utimes } from "node:fs/promises";
import path from "node:path";
import { removePartial } from "@vivarium/archive/unpack";
import { SNAPSHOT_ID_PATTERN, type SnapshotSpec } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import { NodeError } from "../node-error.ts";
import { isBaselineId } from "./baseline-id.ts";
import { lookOf, removeFolder, removeRemains } from "./folder.ts";
import { KnownDamage } from "./known-damage.ts";
import { entryOf, filesOf, isolationOf, type Loadable, lacksFile, readManifest } from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";

export class SnapshotTable {
  readonly #dir: string;
  readonly #log: Log;
  readonly #damage = new KnownDamage();
  readonly #copies = new SerialQueue();
  /** How machines run that are loaded from a snapshot, by id: of each, the manifest is read once for that. */
  readonly #isolation = new Map<string, "kvm" | "emulated">();
  readonly saving = new Map<string, { spec: SnapshotSpec; done: Promise<Loadable> }>();

  constructor(init: { dataDir: string; log: Log }) {
    this.#dir = path.join(init.dataDir, "pool/s");
    this.#log = init.log;
  }

  dirOf(id: string): string {
    return path.join(this.#dir, id);
  }

  /** The id of the snapshot in a folder; undefined for any other folder. */
  idOf(dir: string): string | undefined {
    return path.dirname(dir) === this.#dir ? path.basename(dir) : undefined;
  }

  /** Snapshots known to be damaged so far. */
  get damaged(): string[] {
    return this.#damage.names;
  }

  /** Call at the daemon's start: removes unpublished and half removed snapshots. Damaged ones stay. */
  async removeUnpublished(): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o711 });
    const remains = [...(await removePartial(this.#dir)), ...(await removeRemains(this.#dir))];
    if (remains.length > 0) this.#log.info({ remains }, "removed snapshots that were never finished");
  }

  /** Checks every snapshot for missing or cut files, so that `damaged` lists them. */
  async checkAll(): Promise<void> {
    for (const id of await this.#ids()) await this.check(id).catch(() => {});
  }

  async find(id: string): Promise<Loadable> {
    const found = await this.get(id);
    if (found) return found;
    throw new NodeError("snapshot_not_found", `no snapshot ${id} on this node`);
  }

  /** A published snapshot that cannot be read is reported as damaged, not as unknown. */
  async get(id: string): Promise<Loadable | undefined> {
    const dir = this.dirOf(id);
    if ((await lookOf(dir)) !== "published") return undefined;
    try {
      return { dir, manifest: await readManifest(dir) };
    } catch (cause) {
      // The snapshot was removed between the two checks.
      if (!existsSync(dir)) return undefined;
      this.#noteDamage(dir, cause);
      throw damagedError("its manifest is missing or damaged", cause);
    }
  }

  /**
   * The snapshot, if every file has its size and no load has found the content damaged. The content is not read: that
   * would take as long as the load, which verifies it.
   */
  async check(id: string): Promise<Loadable> {
    const found = await this.find(id);
    if (this.#damage.has(found.dir)) throw damagedError("it was found damaged before");
    for (const name of filesOf(found.manifest)) {
      const expected = entryOf(found.manifest, name).bytes;
      const { size } = await stat(path.join(found.dir, name)).catch((cause: Error) => {
        throw this.gone(found, cause);
      });
      const misfit = new UnusableSnapshot(`${name} has ${size} bytes of ${expected}`);
      if (size !== expected) throw this.unloadable(found, misfit);
    }
    return found;
  }

  async list(): Promise<Loadable[]> {
    return await this.#present(await this.#ids());
  }

  /** Baselines of other nodes, which were unpacked here. */
  async ofOtherNodes(): Promise<Loadable[]> {
    return await this.#present((await this.#ids()).filter(isBaselineId));
  }

  /** Notes that a machine is started from it. */
  async noteUse(id: string): Promise<void> {
    const now = new Date();
    // It is a note alone, and the snapshot may be gone.
    await utimes(this.dirOf(id), now, now).catch(() => {});
  }

  /** How machines run that are loaded from these snapshots, one word for each. */
  async isolation(): Promise<("kvm" | "emulated")[]> {
    const ids = await this.#ids();
    for (const id of ids.filter((each) => !this.#isolation.has(each))) {
      // A snapshot that is being made, or that is damaged, is not loaded.
      const manifest = await readManifest(this.dirOf(id)).catch(() => undefined);
      if (manifest) this.#isolation.set(id, isolationOf(manifest));
    }
    return ids.flatMap((id) => this.#isolation.get(id) ?? []);
  }

  async remove(id: string): Promise<void> {
    await this.saving.get(id)?.done.catch(() => {});
    await removeFolder(this.dirOf(id));
    this.#damage.forget(this.dirOf(id));
    this.#isolation.delete(id);
  }

  /** Runs publications of copies one at a time, so that of two concurrent ones the second finds the first published. */
  publishCopy<T>(publish: () => Promise<T>): Promise<T> {
    return this.#copies.run(publish);
  }

  /** Whether another published snapshot consists of the same files. */
  async hasCopy(source: Loadable): Promise<boolean> {
    const inodeOf = async (dir: string) => {
      const find = async (name: string) => (await stat(path.join(dir, name)).catch(() => undefined))?.ino;
      // Sealed snapshots share their `mem` with others that are no copies of them.
      return (await find("mem.sealed")) ?? (await find("mem"));
    };
    const inode = await inodeOf(source.dir);
    if (inode === undefined) return false;
    const isCopy = async (dir: string) =>
      dir !== source.dir && (await inodeOf(dir)) === inode && (await lookOf(dir)) === "published";
    const dirs = (await this.#ids()).map((id) => this.dirOf(id));
    return (await Promise.all(dirs.map(isCopy))).includes(true);
  }

  /** The error for a missing file: the snapshot was deleted while in use, or it is damaged. */
  gone(source: Loadable, cause: Error): Error {
    if (existsSync(source.dir)) return this.unloadable(source, cause);
    return new NodeError("snapshot_not_found", `no snapshot ${path.basename(source.dir)} on this node`, {
      cause,
    });
  }

  /** The error for a failed load. A state that fails verification or lacks a file is remembered as damaged; it stays. */
  unloadable(source: Loadable, cause: Error): Error {
    if (!(cause instanceof UnusableSnapshot) && !lacksFile(source)) return cause;
    this.#noteDamage(source.dir, cause);
    return damagedError(cause.message, cause);
  }

  /** A damaged snapshot cannot be used, so it is left out. A request for it by name returns the reason. */
  async #present(ids: readonly string[]): Promise<Loadable[]> {
    const found = await Promise.all(ids.map((id) => this.get(id).catch(() => undefined)));
    return found.filter((each) => each !== undefined);
  }

  async #ids(): Promise<string[]> {
    const names = await readdir(this.#dir).catch(() => []);
    return names.filter((name) => SNAPSHOT_ID_PATTERN.test(name));
  }

  #noteDamage(dir: string, err: unknown): void {
    if (this.idOf(dir) === undefined || !this.#damage.note(dir)) return;
    this.#log.error({ snapshot: path.basename(dir), err }, "a snapshot is damaged and cannot be loaded");
  }
}

const damagedError = (why: string, cause?: unknown) =>
  new NodeError("snapshot_damaged", `the saved state cannot be used: ${why}`, { cause });
