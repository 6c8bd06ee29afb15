/**
 * Holds the Connections of all sessions, in memory only. A change is in effect once its promise resolves: everything that
 * used an older credential is closed by then.
 */
import type { SecureContext } from "node:tls";
import type { SessionConnections } from "@vivarium/contract/gateway";
import { LeafCertificates } from "./leaf-certificates.ts";
import { Origin } from "./origin.ts";
import { SessionShare } from "./session-share.ts";
import { Turns } from "./turns.ts";

/** Without word from control for this long nothing is injected: a revocation might not have arrived. */
const LEASE_MS = 20_000;

interface BoundSession {
  version: number;
  leaves: LeafCertificates;
  share: SessionShare;
  /** By host, of active and ended Connections. */
  origins: Map<string, Origin>;
}

export class BoundConnections {
  readonly #sessions = new Map<string, BoundSession>();
  /** All sessions share them, for the search of answers. */
  readonly #turns = new Turns();
  #leasedUntil = Number.NEGATIVE_INFINITY;

  /**
   * Replaces a session's Connections. An older version than the newest known is ignored. An origin that is no longer
   * listed counts as revoked.
   */
  async set(sent: SessionConnections): Promise<void> {
    const session = this.#sessions.get(sent.session_id) ?? newSession(sent, this.#turns);
    if (sent.version < session.version) return;
    this.#sessions.set(sent.session_id, session);
    session.version = sent.version;
    if (!session.leaves.isOf(sent.ca)) session.leaves = new LeafCertificates(sent.ca);
    const originOf = (of: { host: string; name: string }) => {
      const origin = session.origins.get(of.host) ?? new Origin(of, session.share);
      session.origins.set(of.host, origin);
      return origin;
    };
    const listed = new Set([...sent.connections, ...sent.tombstones].map(({ host }) => host));
    const gone = [...session.origins.values()].filter(({ host }) => !listed.has(host));
    await Promise.all([
      ...gone.map((origin) => origin.end("revoked")),
      ...sent.tombstones.map((tombstone) => originOf(tombstone).end(tombstone.state)),
      ...sent.connections.map((bound) => originOf(bound).replace(bound)),
    ]);
  }

  /** Forgets a session that has no machine any more, with its authority. */
  async drop(sessionId: string): Promise<void> {
    const session = this.#sessions.get(sessionId);
    this.#sessions.delete(sessionId);
    await Promise.all([...(session?.origins.values() ?? [])].map((origin) => origin.end("revoked")));
  }

  /** Forgets all sessions but these. */
  async keepOnly(sessionIds: ReadonlySet<string>): Promise<void> {
    const others = [...this.#sessions.keys()].filter((id) => !sessionIds.has(id));
    await Promise.all(others.map((id) => this.drop(id)));
  }

  /** Control was reachable `ageMs` ago. */
  renewLease(ageMs = 0): void {
    this.#leasedUntil = Math.max(this.#leasedUntil, performance.now() - ageMs + LEASE_MS);
  }

  /** Whether control was reachable lately. Otherwise no credential may be sent. */
  get isLeased(): boolean {
    return performance.now() < this.#leasedUntil;
  }

  /** Undefined when the host is not bound: its traffic is not intercepted. */
  find(sessionId: string, host: string): Origin | undefined {
    return this.#sessions.get(sessionId)?.origins.get(host);
  }

  /** Rejects when the session is gone. */
  async certificateFor(sessionId: string, host: string): Promise<SecureContext> {
    const session = this.#sessions.get(sessionId);
    if (!session) throw new Error("the session has no Connections any more");
    return await session.leaves.contextFor(host);
  }
}

function newSession({ ca }: SessionConnections, turns: Turns): BoundSession {
  const share = new SessionShare(turns);
  return { version: 0, leaves: new LeafCertificates(ca), share, origins: new Map() };
}
