/**
 * Wakes the readers of this process when events are published. Events of this process are published at once. Events of
 * other processes are found by polling the head.
 */
import { EventEmitter } from "node:events";
import { sleep } from "@vivarium/kit/clock";
import { Coalesced } from "@vivarium/kit/coalesced";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { publishEvents } from "./publish.ts";
import { listOrgsAfter, readHead } from "./store.ts";

/** After this time a reader reads the database, in case it was not woken. */
const POLL_MS = 30_000;
/** Without readers, one of so many calls of `poll` looks. A list of events does not wait for it: it looks itself. */
const WITHOUT_READERS = 4;

export interface EventDeps {
  db: Database;
  eventFeed: EventFeed;
  log: Log;
}

export class EventFeed {
  readonly #deps: { db: Database; signals: SessionSignals };
  readonly #emitter = new EventEmitter().setMaxListeners(0);
  readonly #closing = new AbortController();
  readonly #streams = new Set<Promise<unknown>>();
  readonly #looks = new Coalesced(() => this.#look());
  #head = 0;
  #polls = 0;

  constructor(deps: { db: Database; signals: SessionSignals }) {
    this.#deps = deps;
  }

  /** The last position whose readers were woken. No event will ever appear at or before it. */
  get head(): number {
    return this.#head;
  }

  /** Fires when this process shuts down. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Publishes whenever a session moves in this process, until the returned function is called. Without readers, the
   * periodic call publishes many events at once.
   */
  followMoves(onFailure: (error: unknown) => void): () => void {
    return this.#deps.signals.onAnyMove(() => {
      if (this.#hasReaders) void this.look().catch(onFailure);
    });
  }

  /** Publishes. Resolves once every event that was committed before this call has its position. */
  look(): Promise<void> {
    return this.#looks.run();
  }

  /** To be called periodically, for events of other processes. */
  async poll(): Promise<void> {
    if (this.#hasReaders || this.#polls++ % WITHOUT_READERS === 0) await this.look();
  }

  /** `next` resolves when events have come since the last call, after a while, or when the signal aborts. */
  subscribe(orgId: string): { next: (signal: AbortSignal) => Promise<void>; stop: () => void } {
    let isNew = false;
    let wakeReader = () => {};
    const listener = () => {
      isNew = true;
      wakeReader();
    };
    this.#emitter.on(orgId, listener);
    const next = async (signal: AbortSignal) => {
      const woken = new AbortController();
      wakeReader = () => woken.abort();
      if (!isNew) await sleep(POLL_MS, AbortSignal.any([signal, woken.signal]));
      isNew = false;
    };
    return { next, stop: () => void this.#emitter.off(orgId, listener) };
  }

  /** Shutdown waits for this stream to end. */
  async keep<T>(stream: Promise<T>): Promise<T> {
    this.#streams.add(stream);
    return await stream.finally(() => this.#streams.delete(stream));
  }

  async stop(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#streams);
  }

  get #hasReaders(): boolean {
    return this.#emitter.eventNames().length > 0;
  }

  async #look(): Promise<void> {
    const { db } = this.#deps;
    const before = await readHead(db);
    if (before.isWaiting) await publishEvents(db);
    const { position } = before.isWaiting ? await readHead(db) : before;
    if (position <= this.#head) return;
    const isFirst = this.#head === 0;
    const orgs = isFirst || !this.#hasReaders ? [] : await listOrgsAfter(db, this.#head);
    this.#head = position;
    // The first call does not know which events are new, so it wakes all readers.
    for (const orgId of isFirst ? this.#emitter.eventNames() : orgs) this.#emitter.emit(orgId);
  }
}
