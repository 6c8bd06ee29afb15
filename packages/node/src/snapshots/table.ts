/** The snapshots of this node: published folders below the pool, and those that are being made. */
import { existsSync } from "node:fs";
import { mkdir, readdir, stat } from "node:fs/promises";
import path from "node:path";
import { SNAPSHOT_ID_PATTERN, type SnapshotSpec, type SnapshotStatus } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import { NodeError } from "../node-error.ts";
import { lookOf, removeFolder, removeRemains } from "./folder.ts";
import { KnownDamage } from "./known-damage.ts";
import { type Loadable, type Manifest, readManifest, SNAPSHOT_FILES, UnusableSnapshot } from "./manifest.ts";

export class SnapshotTable {
  readonly #dir: string;
  readonly #log: Log;
  readonly #damage = new KnownDamage();
  #copyTurn: Promise<unknown> = Promise.resolve();
  readonly saving = new Map<string, { spec: SnapshotSpec; done: Promise<Loadable> }>();

  constructor(init: { dataDir: string; log: Log }) {
    this.#dir = path.join(init.dataDir, "pool/s");
    this.#log = init.log;
  }

  dirOf(id: string): string {
    return path.join(this.#dir, id);
  }

  /** Of a snapshot's folder; undefined for any other. */
  idOf(dir: string): string | undefined {
    return path.dirname(dir) === this.#dir ? path.basename(dir) : undefined;
  }

  /** Known so far. */
  get damaged(): string[] {
    return this.#damage.names;
  }

  /** At start: what was never published, or was being removed, belongs to nobody. Whatever else is damaged stays. */
  async removeUnpublished(): Promise<void> {
    await mkdir(this.#dir, { recursive: true, mode: 0o711 });
    const remains = await removeRemains(this.#dir);
    if (remains.length > 0) this.#log.info({ remains }, "removed snapshots that were never finished");
  }

  /** What a look tells of damage to each of them is known afterwards. */
  async lookThrough(): Promise<void> {
    for (const id of await this.#ids()) await this.check(id).catch(() => {});
  }

  async find(id: string): Promise<Loadable> {
    const found = await this.#published(id);
    if (found) return found;
    throw new NodeError("snapshot_not_found", `no snapshot ${id} on this node`);
  }

  async get(id: string): Promise<Loadable | undefined> {
    return await this.#published(id);
  }

  /**
   * Found, and whole as far as a look tells: every file is there in its size, and no load has failed on what they hold.
   * To read them would take as long as the load that verifies them.
   */
  async check(id: string): Promise<Loadable> {
    const found = await this.find(id);
    if (this.#damage.has(found.dir)) throw damagedError("it was found damaged before");
    for (const name of SNAPSHOT_FILES) {
      const expected = found.manifest.files[name].bytes;
      const { size } = await stat(path.join(found.dir, name)).catch((cause: Error) => {
        throw this.gone(found, cause);
      });
      const misfit = new UnusableSnapshot(`${name} has ${size} bytes of ${expected}`);
      if (size !== expected) throw this.unloadable(found, misfit);
    }
    return found;
  }

  async list(): Promise<SnapshotStatus[]> {
    // One that is damaged is none that could be used; asking for it by its name says what is wrong with it.
    const published = await Promise.all(
      (await this.#ids()).map(async (id) => ({
        id,
        found: await this.#published(id).catch(() => undefined),
      })),
    );
    return published.flatMap(({ id, found }) => (found ? [statusOf(id, found.manifest)] : []));
  }

  async remove(id: string): Promise<void> {
    await this.saving.get(id)?.done.catch(() => {});
    await removeFolder(this.dirOf(id));
    this.#damage.forget(this.dirOf(id));
  }

  /** One after the other: of two copies that are made at once, the second finds the first one published. */
  publishCopy<T>(publish: () => Promise<T>): Promise<T> {
    const mine = this.#copyTurn.then(publish, publish);
    this.#copyTurn = mine.catch(() => {});
    return mine;
  }

  /** Whether another snapshot, one that is published, consists of the same files. */
  async hasCopy(source: Loadable): Promise<boolean> {
    const inodeOf = async (dir: string) => (await stat(path.join(dir, "mem")).catch(() => undefined))?.ino;
    const inode = await inodeOf(source.dir);
    if (inode === undefined) return false;
    const isCopy = async (dir: string) =>
      dir !== source.dir && (await inodeOf(dir)) === inode && (await lookOf(dir)) === "published";
    const dirs = (await this.#ids()).map((id) => this.dirOf(id));
    return (await Promise.all(dirs.map(isCopy))).includes(true);
  }

  /** A file of it is missing: it was deleted while it was being used, or else it is damaged. */
  gone(source: Loadable, cause: Error): Error {
    if (existsSync(source.dir)) return this.unloadable(source, cause);
    return new NodeError("snapshot_not_found", `no snapshot ${path.basename(source.dir)} on this node`, {
      cause,
    });
  }

  /** A saved state that does not verify; the files stay as they are. Any other failure says nothing about them. */
  unloadable(source: Loadable, cause: Error): Error {
    if (!(cause instanceof UnusableSnapshot) && !lacksFile(source.dir)) return cause;
    this.#noteDamage(source.dir, cause);
    return damagedError(cause.message, cause);
  }

  async #ids(): Promise<string[]> {
    const names = await readdir(this.#dir).catch(() => []);
    return names.filter((name) => SNAPSHOT_ID_PATTERN.test(name));
  }

  /** What was published once and cannot be read now is damaged, and not unknown. */
  async #published(id: string): Promise<Loadable | undefined> {
    const dir = this.dirOf(id);
    if ((await lookOf(dir)) !== "published") return undefined;
    try {
      return { dir, manifest: await readManifest(dir) };
    } catch (cause) {
      // It was removed between the two looks.
      if (!existsSync(dir)) return undefined;
      this.#noteDamage(dir, cause);
      throw damagedError("its manifest is missing or damaged", cause);
    }
  }

  #noteDamage(dir: string, err: unknown): void {
    if (this.idOf(dir) === undefined || !this.#damage.note(dir)) return;
    this.#log.error({ snapshot: path.basename(dir), err }, "a snapshot is damaged and cannot be loaded");
  }
}

const lacksFile = (dir: string) =>
  existsSync(dir) && !SNAPSHOT_FILES.every((name) => existsSync(path.join(dir, name)));

const damagedError = (why: string, cause?: unknown) =>
  new NodeError("snapshot_damaged", `the saved state cannot be used: ${why}`, { cause });

export function statusOf(id: string, manifest: Manifest): SnapshotStatus {
  return {
    snapshot_id: id,
    state: "ready",
    template: manifest.template,
    size: manifest.size,
    bytes: manifest.own_bytes,
    created_at: manifest.created_at,
    timings: manifest.timings,
    machine_id: gaveWay(manifest.spec),
  };
}

/** The machine that was held once it was saved. */
function gaveWay(spec: Manifest["spec"]): string | undefined {
  return spec && "machine_id" in spec && spec.after === "hold" ? spec.machine_id : undefined;
}
