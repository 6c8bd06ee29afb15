/**
 * The clients of terminals and tunnels that this process serves. Renews their leases, and signals when their machine
 * has stopped.
 */
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { NodeError } from "../fleet/node-error.ts";
import { hasSameMachine } from "../guest/explain-break.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { findSessionById } from "../sessions/store.ts";
import {
  type AttachmentKind,
  type AttachmentRow,
  endAttachment,
  insertAttachment,
  renewAttachments,
} from "./attachments-store.ts";

/** How long a client's lease outlasts the process that served the client. */
const LEASE_MS = 15_000;
const RENEW_MS = 5_000;

export interface Attachment {
  /** Fires when the session is paused, destroyed or has another machine. */
  readonly moved: AbortSignal;
  leave(): void;
}

interface Client extends AttachmentRow {
  session: SessionRow;
  moved: AbortController;
}

export class Attachments {
  readonly #deps: { db: Database; signals: SessionSignals; log: Log };
  readonly #clients = new Map<string, Client>();
  readonly #leaving = new Set<Promise<unknown>>();
  #renewing: Promise<unknown> = Promise.resolve();
  #renewedAt = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: 0 };

  constructor(deps: { db: Database; signals: SessionSignals; log: Log }) {
    this.#deps = deps;
  }

  /** Adds a client. If the session moved since it was read, throws a NodeError, as for a stopped machine. */
  async add(session: SessionRow, kind: AttachmentKind): Promise<Attachment> {
    const row = { id: randomId(), sessionId: session.id, incarnation: session.incarnation, kind };
    if (!(await insertAttachment(this.#deps.db, row, LEASE_MS))) {
      throw new NodeError("refused", "the session moved under the attach", { code: "machine_held" });
    }
    const client = { ...row, session, moved: new AbortController() };
    this.#clients.set(row.id, client);
    const stopListening = this.#deps.signals.onMove(session.id, () => void this.#abortIfMoved(client));
    return {
      moved: client.moved.signal,
      leave: () => {
        stopListening();
        this.#leave(client);
      },
    };
  }

  /** Renews all leases if that is due, and signals the clients whose machine is gone. */
  async renew(): Promise<void> {
    if (this.#clients.size === 0 || !this.#isRenewalDue()) return;
    const all = [...this.#clients.values()];
    const renewing = renewAttachments(this.#deps.db, all, LEASE_MS);
    this.#renewing = renewing.catch(() => undefined);
    const valid = await renewing;
    this.#renewedAt = { monotonicMs: performance.now(), wallMs: Date.now() };
    for (const { id, moved } of all) if (!valid.has(id)) moved.abort();
  }

  /**
   * Checks both clocks. After a suspend of the host, or a change of its clock, leases may have run out although they
   * were just renewed.
   */
  #isRenewalDue(): boolean {
    const { monotonicMs, wallMs } = this.#renewedAt;
    return performance.now() - monotonicMs >= RENEW_MS || Math.abs(Date.now() - wallMs) >= RENEW_MS;
  }

  /** For shutdown: ends the leases of all clients. */
  async stop(): Promise<void> {
    for (const client of [...this.#clients.values()]) this.#leave(client);
    await Promise.all(this.#leaving);
  }

  #leave(client: Client): void {
    if (!this.#clients.delete(client.id)) return;
    // Race: a renewal in progress would extend the lease again. So the end waits for it.
    const ended = this.#renewing.then(() => endAttachment(this.#deps.db, client));
    // A lease that could not be ended runs out.
    const left = ended.catch((err: unknown) =>
      this.#deps.log.warn(
        { err, session_id: client.sessionId },
        "the lease of a client that left could not be ended",
      ),
    );
    this.#leaving.add(left);
    void left.finally(() => this.#leaving.delete(left));
  }

  async #abortIfMoved({ session, moved }: Client): Promise<void> {
    try {
      const now = await findSessionById(this.#deps.db, session.id);
      if (!now || !hasSameMachine(now, session)) moved.abort();
    } catch {
      // The next renewal notices the move as well.
    }
  }
}
