/** One bound origin of a session: with a credential while its Connection is active, closed for ever once it is revoked. */
import type { BoundConnection, ConnectionCode, ConnectionTombstone } from "@vivarium/contract/gateway";
import { Credential } from "./credential.ts";
import { compilePaths, type PathRule } from "./path-rules.ts";
import type { SessionShare } from "./session-share.ts";

/** Answers that may carry the credential before the Connection is suspended. */
const MAX_REFLECTIONS = 3;
/** Longest wait between two looks at the clock. */
const MAX_WAIT_MS = 60_000;

/** A guest's connection to an origin, with all that was opened for it. */
export interface OpenConnection {
  /** Resolves once every socket is closed. From the call on nothing more is sent. */
  destroy(): Promise<void>;
}

/** A Connection that may be used. */
export interface ActiveConnection {
  generation: number;
  methods: ReadonlySet<string>;
  rules: readonly PathRule[];
  credential: Credential;
  expiresAt: number;
}

export type EndState = ConnectionTombstone["state"];

export class Origin {
  readonly host: string;
  /** The share of its session. */
  readonly share: SessionShare;
  #name: string;
  #generation = 0;
  #active: ActiveConnection | undefined;
  /** Why there is no active Connection; undefined before the first one. */
  #ended: EndState | undefined;
  #reflections = 0;
  #expiry: NodeJS.Timeout | undefined;
  #dialled = 0;
  readonly #open = new Set<OpenConnection>();

  constructor({ host, name }: { host: string; name: string }, share: SessionShare) {
    this.host = host;
    this.share = share;
    this.#name = name;
  }

  get name(): string {
    return this.#name;
  }

  /** The Connection; undefined while its origin is closed. */
  active(): ActiveConnection | undefined {
    if (this.#active && this.#active.expiresAt <= Date.now()) void this.end("expired");
    return this.#active;
  }

  /** The code for requests to a closed origin. */
  get closedCode(): ConnectionCode {
    return `connection_${this.#ended ?? "revoked"}`;
  }

  /** Adds a guest's connection, which is destroyed when what it may have used changes. */
  add(connection: OpenConnection): () => void {
    this.#open.add(connection);
    return () => this.#open.delete(connection);
  }

  /** Counts a TCP connection to the origin. Undefined: there are `most`. Otherwise the function that gives it back. */
  takeDial(most: number): (() => void) | undefined {
    if (this.#dialled >= most) return undefined;
    this.#dialled += 1;
    return () => {
      this.#dialled -= 1;
    };
  }

  /** Puts a Connection into effect, unless this or a newer one was, or the origin is revoked. Cuts the former one. */
  async replace(bound: BoundConnection): Promise<void> {
    if (this.#ended === "revoked" || bound.generation <= this.#generation) return;
    const cut = this.#stop();
    this.#name = bound.name;
    this.#generation = bound.generation;
    this.#ended = undefined;
    this.#reflections = 0;
    const expiresAt = Date.parse(bound.expires_at);
    this.#active = {
      generation: bound.generation,
      methods: new Set(bound.methods),
      rules: compilePaths(bound.paths),
      credential: new Credential(bound.header),
      expiresAt,
    };
    this.#awaitExpiry(expiresAt);
    await cut;
  }

  /** Forgets the credential and cuts what is open. `revoked` is final. */
  async end(state: EndState): Promise<void> {
    if (this.#ended === "revoked") return;
    this.#ended = state;
    await this.#stop();
  }

  /** Counts an answer that carried the credential. */
  async noteReflection(): Promise<void> {
    this.#reflections += 1;
    if (this.#reflections >= MAX_REFLECTIONS && this.#active) await this.end("suspended");
  }

  /** Looks again when the time has come, or is near: a timer may fire early, and the system's clock may be set meanwhile. */
  #awaitExpiry(expiresAt: number): void {
    if (!this.active()) return;
    const waitMs = Math.min(expiresAt - Date.now() + 1, MAX_WAIT_MS);
    this.#expiry = setTimeout(() => this.#awaitExpiry(expiresAt), waitMs).unref();
  }

  async #stop(): Promise<void> {
    clearTimeout(this.#expiry);
    const { credential } = this.#active ?? {};
    this.#active = undefined;
    const closing = [...this.#open].map((connection) => connection.destroy());
    // After the cut: answers that were still passed on would not be searched any more.
    credential?.forget();
    await Promise.all(closing);
  }
}
