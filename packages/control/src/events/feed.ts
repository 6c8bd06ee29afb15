/**
 * Tells the readers of this process that there are new events. Moves of this process are looked at at once; what
 * other processes wrote is found by looking at the head, as everything of theirs is.
 */
import { EventEmitter } from "node:events";
import { sleep } from "@vivarium/kit/clock";
import type { Database } from "../db/pool.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { publishEvents } from "./publish.ts";
import { listOrgsAfter, readHead } from "./store.ts";

/** A reader looks for itself after this long, should nothing have told it to. */
const PATIENCE_MS = 30_000;

export interface News {
  /** Resolves when events have come since the last call, after a while, or when the signal aborts. */
  next(signal: AbortSignal): Promise<void>;
  stop(): void;
}

export class EventFeed {
  readonly #deps: { db: Database; signals: SessionSignals };
  readonly #news = new EventEmitter().setMaxListeners(0);
  readonly #closing = new AbortController();
  readonly #streams = new Set<Promise<unknown>>();
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;
  #head = 0;

  constructor(deps: { db: Database; signals: SessionSignals }) {
    this.#deps = deps;
  }

  /** Everything up to this place was told of; nothing will ever appear before it. */
  get head(): number {
    return this.#head;
  }

  /** Fires when this process shuts down. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Looks whenever something in this process moved, until the returned function is called. Where nobody reads, what
   * moves is left to the periodic look, which publishes many at once.
   */
  followMoves(onFailure: (error: unknown) => void): () => void {
    return this.#deps.signals.onAnyMove(() => {
      if (this.#news.eventNames().length > 0) void this.look().catch(onFailure);
    });
  }

  /** Resolves once everything that was committed before this call has its place. */
  look(): Promise<void> {
    this.#next ??= this.#after(this.#running ?? Promise.resolve());
    return this.#next;
  }

  news(orgId: string): News {
    let isNew = false;
    let tell = () => {};
    const listener = () => {
      isNew = true;
      tell();
    };
    this.#news.on(orgId, listener);
    const next = async (signal: AbortSignal) => {
      const told = new AbortController();
      tell = () => told.abort();
      if (!isNew) await sleep(PATIENCE_MS, AbortSignal.any([signal, told.signal]));
      isNew = false;
    };
    return { next, stop: () => void this.#news.off(orgId, listener) };
  }

  /** A stream that the end of this process waits for. */
  async keep<T>(stream: Promise<T>): Promise<T> {
    this.#streams.add(stream);
    return await stream.finally(() => this.#streams.delete(stream));
  }

  async stop(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#streams);
  }

  async #after(running: Promise<void>): Promise<void> {
    await running.catch(() => undefined);
    this.#running = this.#next;
    this.#next = undefined;
    await this.#look();
  }

  async #look(): Promise<void> {
    const { db } = this.#deps;
    const before = await readHead(db);
    if (before.isWaiting) await publishEvents(db);
    const { position } = before.isWaiting ? await readHead(db) : before;
    if (position <= this.#head) return;
    const isFirst = this.#head === 0;
    const orgs = isFirst || this.#news.eventNames().length === 0 ? [] : await listOrgsAfter(db, this.#head);
    this.#head = position;
    // The first look knows nothing of what is new, so that it tells all who wait.
    for (const orgId of isFirst ? this.#news.eventNames() : orgs) this.#news.emit(orgId);
  }
}
