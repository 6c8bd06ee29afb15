/** The clients of terminals and tunnels that this process serves: keeps their leases, and tells them that they are past. */
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { NodeError } from "../fleet/node-error.ts";
import { isSameStretch } from "../guest/broken-off.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import {
  type AttachmentKind,
  type AttachmentRow,
  deletePastAttachments,
  endAttachment,
  insertAttachment,
  renewAttachments,
} from "./attachments-store.ts";

/** A client counts as gone this long after the process that served it died. */
const LEASE_MS = 15_000;
const RENEW_MS = 5_000;

export interface Attachment {
  /** Fires when the session is paused, destroyed or has another machine. */
  readonly moved: AbortSignal;
  leave(): void;
}

interface Kept extends AttachmentRow {
  session: SessionRow;
  moved: AbortController;
}

export class Attachments {
  readonly #deps: { db: Database; signals: SessionSignals; log: Log };
  readonly #kept = new Map<string, Kept>();
  readonly #leaving = new Set<Promise<unknown>>();
  #renewing: Promise<unknown> = Promise.resolve();
  #renewedAt = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: 0 };

  constructor(deps: { db: Database; signals: SessionSignals; log: Log }) {
    this.#deps = deps;
  }

  /** Throws what a node throws whose machine gave way, when the session moved since it was read. */
  async add(session: SessionRow, kind: AttachmentKind): Promise<Attachment> {
    const row = { id: randomId(), sessionId: session.id, incarnation: session.incarnation, kind };
    if (!(await insertAttachment(this.#deps.db, row, LEASE_MS))) {
      throw new NodeError("refused", "the session moved under the attach", { code: "machine_held" });
    }
    const kept = { ...row, session, moved: new AbortController() };
    this.#kept.set(row.id, kept);
    const stopListening = this.#deps.signals.onMove(session.id, () => void this.#look(kept));
    return {
      moved: kept.moved.signal,
      leave: () => {
        stopListening();
        this.#leave(kept);
      },
    };
  }

  /** Renews all leases, when it is time to. */
  async renew(): Promise<void> {
    if (this.#kept.size === 0 || !this.#isTime()) return;
    const all = [...this.#kept.values()];
    const renewing = renewAttachments(this.#deps.db, all, LEASE_MS);
    this.#renewing = renewing.catch(() => undefined);
    const valid = await renewing;
    this.#renewedAt = { monotonicMs: performance.now(), wallMs: Date.now() };
    for (const { id, moved } of all) if (!valid.has(id)) moved.abort();
  }

  /** By both clocks: a host that slept, or whose clock was set, finds leases run out that it has just renewed. */
  #isTime(): boolean {
    const { monotonicMs, wallMs } = this.#renewedAt;
    return performance.now() - monotonicMs >= RENEW_MS || Math.abs(Date.now() - wallMs) >= RENEW_MS;
  }

  async forgetPast(): Promise<void> {
    await deletePastAttachments(this.#deps.db);
  }

  /** For shutdown: everybody has left, and it is written down. */
  async stop(): Promise<void> {
    for (const kept of [...this.#kept.values()]) this.#leave(kept);
    await Promise.all(this.#leaving);
  }

  #leave(kept: Kept): void {
    if (!this.#kept.delete(kept.id)) return;
    // Behind a renewal that is under way: it would let the client come back for the length of a lease.
    const ended = this.#renewing.then(() => endAttachment(this.#deps.db, kept));
    // A lease that cannot be ended ends by itself.
    const left = ended.catch((err: unknown) =>
      this.#deps.log.warn({ err, session_id: kept.sessionId }, "a client's leave could not be written down"),
    );
    this.#leaving.add(left);
    void left.finally(() => this.#leaving.delete(left));
  }

  async #look({ session, moved }: Kept): Promise<void> {
    try {
      const now = await findSessionById(this.#deps.db, session.id);
      if (!now || !isSameStretch(now, session)) moved.abort();
    } catch {
      // The renewal finds it out as well.
    }
  }
}
