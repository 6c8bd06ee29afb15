/**
 * Connections of sessions, on their way from control to the gateway: the newest that control sent of each session, and
 * the lease, which says that they are current. Hazard: they hold credentials in the clear. So they are kept in memory
 * alone: nothing of them may reach a file, a log line or an error message, and a new process of the node has none.
 */
import type { ConnectionLine, SessionConnections } from "@vivarium/contract/gateway";
import type { ConnectionLease } from "@vivarium/contract/node";
import { NodeError } from "../node-error.ts";
import { GatewayStream } from "./gateway-stream.ts";

const CONFIRM_MS = 5_000;
/** Without a machine a session's credentials are kept for this long after control last sent or listed them. */
const KEEP_MS = 30_000;

/** As long as a gateway's lease. */
const LEASE_MS = 20_000;

/** A lease may have been composed this long before it arrives: it does not list a session that was sent meanwhile. */
const COMPOSED_MS = 10_000;

interface KnownSession {
  connections: SessionConnections;
  /** When control sent them (`performance.now()`). */
  sentAt: number;
  /** Set while the session has no machine here. */
  forgetting: NodeJS.Timeout | undefined;
}

interface Lease {
  /** When it arrived from control (`performance.now()`). */
  at: number;
  /** Newest version of each session, by control. */
  versions: ReadonlyMap<string, number>;
  /** Sessions whose version the node lacks although the lease before this one listed it. */
  overdue: ReadonlySet<string>;
}

export class Connections {
  readonly stream: GatewayStream;
  readonly #sessionsHere: () => ReadonlySet<string>;
  readonly #known = new Map<string, KnownSession>();
  #lease: Lease | undefined;
  #seq = 0;
  /** By session: the version that the gateway was sent on this connection, and the number of that line. */
  readonly #sent = new Map<string, { version: number; seq: number }>();
  /** The newest list of sessions that the gateway was sent on this connection, and the number of that line. */
  #sentOnly: { ids: string; seq: number } | undefined;
  /** The newest lease that the gateway was sent on this connection. */
  #sentLease: Lease | undefined;
  /** Sessions that have ended and still have a machine here. */
  readonly #ended = new Set<string>();

  /** `sessionsHere`: ids of the sessions that have a machine in a slot. */
  constructor(sessionsHere: () => ReadonlySet<string>) {
    this.#sessionsHere = sessionsHere;
    this.stream = new GatewayStream({ restart: () => this.#restart(), next: () => this.#next() });
  }

  /**
   * Takes a session's Connections, unless it has newer ones. Resolves to the version that the node has, once the gateway
   * confirmed it. A session without a machine here waits for nothing: only machines use Connections. One with a machine
   * waits even if no gateway has connected yet, because a gateway that outlived the node's last process may hold an older
   * credential.
   */
  async put(sent: SessionConnections): Promise<number> {
    const { session_id: id } = sent;
    const version = Math.max(sent.version, this.#versionOf(id));
    // Control read it before the session ended.
    if (this.#ended.has(id)) return version;
    if (sent.version > this.#versionOf(id)) this.#keep(id, { connections: sent, sentAt: performance.now() });
    this.stream.send();
    if (await this.stream.holdsWithin(CONFIRM_MS, () => this.#isInForce(id, version))) return version;
    throw new NodeError(
      "network_unconfirmed",
      "the gateway did not confirm the Connections in time; they are kept and sent when it is connected",
    );
  }

  /**
   * Takes the Connections of a session that has ended, for as long as its machine runs on. Resolves once the gateway does not
   * have them any more.
   */
  async withdraw(id: string): Promise<void> {
    this.#forget(id);
    if (!this.#sessionsHere().has(id)) return;
    this.#ended.add(id);
    this.stream.send();
    if (await this.stream.holdsWithin(CONFIRM_MS, () => this.#isWithdrawn(id))) return;
    throw new NodeError(
      "network_unconfirmed",
      "the gateway did not confirm in time that it has no Connections of the session any more",
    );
  }

  /**
   * Control lists the newest version of every session that has Connections. Returns the sessions of which the node has
   * another version, and forgets those that are not listed, except those that were sent just before. A newer one is that of a
   * push which overtook the lease, or control's database was restored from a backup.
   */
  renew({ sessions }: ConnectionLease): string[] {
    const before = this.#lease?.versions;
    const versions = new Map(sessions.map(({ session_id, version }) => [session_id, version]));
    const others = [...versions].filter(([id, version]) => this.#versionOf(id) !== version).map(([id]) => id);
    const isBehind = (id: string, leased = new Map<string, number>() as Lease["versions"]) =>
      this.#versionOf(id) < (leased.get(id) ?? 0);
    const overdue = new Set(others.filter((id) => isBehind(id, versions) && isBehind(id, before)));
    this.#lease = { at: performance.now(), versions, overdue };
    const here = this.#sessionsHere();
    for (const [id, known] of [...this.#known]) {
      const isNew = performance.now() - known.sentAt < COMPOSED_MS;
      if ((!versions.has(id) && !isNew) || overdue.has(id)) this.#forget(id);
      else this.#keep(id, known, here);
    }
    this.stream.send();
    return others;
  }

  /**
   * Whether the connected gateway has a lease, without which it injects nothing. While none is connected: whether the next
   * one gets a lease as soon as it connects.
   */
  get isLeased(): boolean {
    const lease = this.stream.isConnected ? this.#sentLease : this.#lease;
    if (!lease || performance.now() - lease.at >= LEASE_MS) return false;
    return lease === this.#sentLease || !this.#isHeldBack(lease, this.#listFor(lease));
  }

  /** Call when a slot got a machine, or lost its machine. */
  machinesChanged(): void {
    const here = this.#sessionsHere();
    for (const id of this.#ended) if (!here.has(id)) this.#ended.delete(id);
    for (const [id, known] of [...this.#known])
      if (here.has(id) !== (known.forgetting === undefined)) this.#keep(id, known, here);
    this.stream.send();
  }

  /** Whether the gateway confirms in time what the node knows of this session. */
  async confirmed(sessionId: string, limitMs: number): Promise<boolean> {
    const version = this.#versionOf(sessionId);
    if (version === 0) return true;
    return await this.stream.holdsWithin(limitMs, () => this.#isInForce(sessionId, version));
  }

  #isInForce(id: string, version: number): boolean {
    if (!this.#sessionsHere().has(id)) return true;
    const sent = this.#sent.get(id);
    return sent !== undefined && sent.version >= version && this.stream.confirmed >= sent.seq;
  }

  /** A session that has left this node is not at the gateway either, or is taken from it by the next list. */
  #isWithdrawn(id: string): boolean {
    if (!this.#sessionsHere().has(id)) return true;
    const only = this.#sentOnly;
    return only !== undefined && !this.#sent.has(id) && this.stream.confirmed >= only.seq;
  }

  #versionOf(id: string): number {
    return this.#known.get(id)?.connections.version ?? 0;
  }

  #keep(
    id: string,
    { connections, sentAt }: Pick<KnownSession, "connections" | "sentAt">,
    here = this.#sessionsHere(),
  ): void {
    clearTimeout(this.#known.get(id)?.forgetting);
    const forgetting = here.has(id) ? undefined : setTimeout(() => this.#forget(id), KEEP_MS).unref();
    this.#known.set(id, { connections, sentAt, forgetting });
  }

  #forget(id: string): void {
    clearTimeout(this.#known.get(id)?.forgetting);
    this.#known.delete(id);
  }

  #restart(): void {
    this.#sent.clear();
    this.#sentOnly = undefined;
    this.#sentLease = undefined;
  }

  /**
   * The next line for the gateway, by comparing what it was sent with what it should have. The lease comes last: it
   * counts for what was sent before it.
   */
  #next(): { text: string; number?: number } | undefined {
    const here = this.#sessionsHere();
    for (const [id, { connections }] of this.#known) {
      const { version } = connections;
      if (here.has(id) && this.#sent.get(id)?.version !== version) return this.#sessionLine(connections);
    }
    // Before the first lease it is unknown which sessions the gateway has from the node's last process.
    const lease = this.#lease;
    if (!lease) return undefined;
    const only = this.#listFor(lease, here);
    if (JSON.stringify(only) !== this.#sentOnly?.ids) return this.#onlyLine(only);
    if (lease === this.#sentLease || this.#isHeldBack(lease, only)) return undefined;
    this.#sentLease = lease;
    return lineOf({ type: "lease", age_ms: Math.round(performance.now() - lease.at) });
  }

  /** Ids of the sessions that the gateway may have, in a fixed order. */
  #listFor(lease: Lease, here = this.#sessionsHere()): string[] {
    return [...here].filter((id) => this.#mayBeAtGateway(id, lease)).sort();
  }

  #isHeldBack({ versions }: Lease, listed: readonly string[]): boolean {
    return listed.some((id) => this.#versionOf(id) < (versions.get(id) ?? 0));
  }

  /**
   * A session whose newest version the node lacks may still be at the gateway with an older one: after a restart of the node
   * its guest's requests continue. The lease waits for the newest version meanwhile, because the older one may have been
   * revoked. If the next lease comes first, the session is taken from the gateway, so that it does not hold up the others.
   */
  #mayBeAtGateway(id: string, { versions, overdue }: Lease): boolean {
    if (this.#ended.has(id)) return false;
    return this.#known.has(id) || (versions.has(id) && !overdue.has(id));
  }

  #sessionLine(session: SessionConnections) {
    const seq = ++this.#seq;
    this.#sent.set(session.session_id, { version: session.version, seq });
    return lineOf({ type: "session", seq, session });
  }

  #onlyLine(ids: string[]) {
    for (const id of this.#sent.keys()) if (!ids.includes(id)) this.#sent.delete(id);
    const seq = ++this.#seq;
    this.#sentOnly = { ids: JSON.stringify(ids), seq };
    return lineOf({ type: "only", seq, session_ids: ids });
  }
}

function lineOf(line: ConnectionLine): { text: string; number?: number } {
  return { text: JSON.stringify(line), ...("seq" in line && { number: line.seq }) };
}
