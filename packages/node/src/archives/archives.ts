/** Packs and unpacks the saved states of this node: few at once, each in a process of its own, ended with its caller. */
import path from "node:path";
import type { Readable, Writable } from "node:stream";
import { TYPES, writeFrame } from "@vivarium/archive/frames";
import { removePartial } from "@vivarium/archive/unpack";
import type { PackQuery, PackResult, UnpackQuery, UnpackResult } from "@vivarium/contract/node";
import { KeyedQueue } from "@vivarium/kit/keyed-queue";
import type { Log } from "@vivarium/kit/log";
import type { DiskGate } from "../disks/gate.ts";
import { NodeError } from "../node-error.ts";
import type { Baselines } from "../snapshots/baselines.ts";
import { describeSnapshot, findState } from "../snapshots/describe-snapshot.ts";
import type { Loadable } from "../snapshots/manifest.ts";
import type { SnapshotTable } from "../snapshots/table.ts";
import { runArchiveProcess } from "./archive-process.ts";
import type { Order, Outcome } from "./order.ts";
import { Turns } from "./turns.ts";

/** Nobody waits for a packing; a wake waits for an unpacking. */
const PACKS_AT_ONCE = 1;
const UNPACKS_AT_ONCE = 2;

interface ArchivesInit {
  baselines: Pick<Baselines, "withId" | "get" | "find">;
  snapshots: SnapshotTable;
  gate: Pick<DiskGate, "reserve">;
  log: Log;
  /** How far the processes give way to others, 0 to 19. */
  niceness: number;
  dataDir: string;
  crashAt?: string | undefined;
}

/** The keys of a call, base64url. */
export interface Keys {
  key: string;
  secret: string;
}

/** The two bodies of a call. */
export interface Bodies {
  asks: Writable;
  answers: Readable;
}

type Work = (signal: AbortSignal) => Promise<PackResult | UnpackResult>;

interface Running {
  id: string;
  leave: () => void;
  done: Promise<void>;
}

/** A call that was found fit to be carried out. */
export type Accepted = (bodies: Bodies) => Promise<void>;

export class Archives {
  readonly #init: ArchivesInit;
  readonly #packs = new Turns(PACKS_AT_ONCE);
  readonly #unpacks = new Turns(UNPACKS_AT_ONCE);
  /** One at a time for a snapshot: the second finds what the first has unpacked. */
  readonly #ofSnapshot = new KeyedQueue();
  readonly #running = new Set<Running>();
  #isClosed = false;

  constructor(init: ArchivesInit) {
    this.#init = init;
  }

  async pack(id: string, query: PackQuery, keys: Keys): Promise<Accepted> {
    const found = await this.#find(id);
    if (!found) throw new NodeError("snapshot_not_found", `no snapshot ${id} on this node`);
    const order = { ...(await this.#order(query, keys)), action: "pack", dir: found.dir } as const;
    return (bodies) =>
      this.#serve(id, bodies, async (signal) => {
        const outcome = await this.#packs.run(signal, () => this.#run(order, bodies, signal));
        if ("packed" in outcome) return outcome;
        return "refused" in outcome ? outcome : unexpected(order);
      });
  }

  async unpack(id: string, query: UnpackQuery, keys: Keys): Promise<Accepted> {
    const { snapshots, gate } = this.#init;
    const found = await this.#find(id);
    const base = found ? {} : await this.#order(query, keys);
    const release = found ? () => {} : await gate.reserve(query.bytes ?? 0);
    const order = { ...base, action: "unpack", dir: snapshots.dirOf(id), contents: query.contents } as Order;
    return (bodies) =>
      this.#serve(id, bodies, async (signal) => {
        const there = found ?? (await this.#unpackOnce(id, order, { bodies, signal }));
        return "refused" in there ? there : { unpacked: await describeSnapshot(this.#init, there) };
      }).finally(release);
  }

  /** Ends what packs or unpacks a snapshot. Returns once nothing does any more. */
  async end(id: string): Promise<void> {
    await this.#end((running) => running.id === id);
  }

  /** Ends everything that runs. Calls that come later end at once. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end(() => true);
  }

  async #end(isMeant: (running: Running) => boolean): Promise<void> {
    const meant = [...this.#running].filter(isMeant);
    for (const { leave } of meant) leave();
    await Promise.all(meant.map(({ done }) => done));
  }

  /** Throws if it is known to be damaged: it is deleted before its archive is unpacked. */
  async #find(id: string): Promise<Loadable | undefined> {
    const { snapshots } = this.#init;
    const found = await findState(this.#init, id);
    return found && snapshots.idOf(found.dir) === id ? await snapshots.check(id) : found;
  }

  async #order({ archive_id: archiveId, base: id }: PackQuery, keys: Keys) {
    const { dataDir: dir, crashAt: at } = this.#init;
    const base = id === undefined ? undefined : await findState(this.#init, id);
    if (id !== undefined && !base)
      throw new NodeError("base_not_found", `the base ${id} is not on this node`);
    return { ...keys, archiveId, base: base && { id: id as string, dir: base.dir }, crash: { at, dir } };
  }

  async #unpackOnce(
    id: string,
    order: Order,
    { bodies, signal }: { bodies: Bodies; signal: AbortSignal },
  ): Promise<Loadable | Extract<Outcome, { refused: unknown }>> {
    return await this.#ofSnapshot.run(id, async () => {
      signal.throwIfAborted();
      const { snapshots } = this.#init;
      const there = await snapshots.get(id);
      if (there) return there;
      try {
        const outcome = await this.#unpacks.run(signal, () => this.#run(order, bodies, signal));
        if ("refused" in outcome) return outcome;
        return await snapshots.find(id);
      } finally {
        // A process that was killed leaves a partial folder.
        await removePartial(path.dirname(order.dir), id);
      }
    });
  }

  async #run(order: Order, bodies: Bodies, signal: AbortSignal): Promise<Outcome> {
    return await runArchiveProcess(order, { ...bodies, signal, niceness: this.#init.niceness });
  }

  async #serve(id: string, bodies: Bodies, work: Work): Promise<void> {
    const ended = new AbortController();
    const leave = () => ended.abort();
    bodies.asks.once("close", leave);
    if (bodies.asks.destroyed || this.#isClosed) leave();
    const running = { id, leave, done: this.#answer(id, bodies, () => work(ended.signal), ended.signal) };
    this.#running.add(running);
    await running.done.finally(() => this.#running.delete(running));
  }

  /** Answers with the result, or breaks the answer off. */
  async #answer(
    id: string,
    { asks, answers }: Bodies,
    work: () => Promise<PackResult | UnpackResult>,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const result = await work();
      await writeFrame(asks, TYPES.result, 0, Buffer.from(JSON.stringify(result)));
      asks.end();
    } catch (err) {
      if (!signal.aborted)
        this.#init.log.error({ snapshot: id, err }, "a saved state was not packed or unpacked");
      asks.destroy();
    } finally {
      answers.resume();
    }
  }
}

function unexpected({ action }: Pick<Order, "action">): never {
  throw new Error(`the process that ${action}s a saved state has another outcome`);
}
