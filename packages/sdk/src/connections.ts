/** `client.connections` and `session.connections`: credentials that the service adds to a session's requests. */
import type {
  ConnectionCreate,
  ConnectionList,
  ConnectionReplace,
  ConnectionStatus,
} from "@vivarium/contract/api";
import {
  type CallOptions,
  getJson,
  postJson,
  send,
  sendJson,
  sessionPath,
  type Transport,
} from "./transport.ts";

/**
 * Connections of sessions (docs/spec/connections.md), reached as `client.connections`. A Connection binds a session to one
 * `https` origin: the service adds the credential to the requests that `allow` matches, and the session never has it. No
 * answer contains the secret. None of these calls wakes a session. All reject with `not_found` for an unknown session.
 */
export class Connections {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * The Connections of a session, oldest first, with those that were revoked.
   *
   * @example
   * const { connections } = await client.connections.list(sessionId);
   * for (const { name, origin, state, expires_at } of connections) console.log(name, origin, state, expires_at);
   */
  list(sessionId: string, options: CallOptions = {}): Promise<ConnectionList> {
    return getJson(this.#transport, pathOf(sessionId), options);
  }

  /**
   * Adds a Connection to a session that had one from its create on (`connections` of `sessions.create`). A request must
   * match one of `allow.methods` and one of `allow.paths`; without them no request gets the credential.
   *
   * Rejects with `conflict` when the session was created without Connections, when the name or the origin is taken (also
   * by a revoked Connection), and over 16; with `validation` for a rule that cannot be read, for an origin that the egress
   * policy does not cover, and for a `ttl_seconds` past the session's lifetime; with `unavailable` when the service has no
   * key to seal secrets. A request whose answer was lost is not repeated: `list` says whether it had its effect.
   *
   * @example
   * const { expires_at } = await client.connections.create(sessionId, {
   *   name: "payments",
   *   origin: "https://api.example.com",
   *   authentication: { type: "bearer", secret },
   *   allow: { methods: ["GET"], paths: ["/v1/customers/*"] },
   *   ttl_seconds: 3600,
   * });
   */
  create(sessionId: string, request: ConnectionCreate, options: CallOptions = {}): Promise<ConnectionStatus> {
    // Never sent twice: the second request would be refused because of the Connection that the first one made.
    return postJson(this.#transport, pathOf(sessionId), request, { ...options, repeatable: false });
  }

  /**
   * Replaces credential, rules and time of a Connection as a whole: `allow` that is left out allows nothing. The new
   * credential is in use when the promise resolves, and requests under the old one are cut. An expired or suspended
   * Connection is active again. The origin must be the same. A request whose answer was lost is repeated.
   *
   * Rejects with `not_found` for an unknown name, with `validation` as `create` does, and for another origin or another
   * name in the body, and with `conflict` for a revoked Connection.
   *
   * @example
   * const authentication = { type: "header", header_name: "X-Api-Key", secret } as const;
   * await client.connections.replace(sessionId, "payments", { origin, authentication, allow });
   */
  replace(
    sessionId: string,
    name: string,
    request: ConnectionReplace,
    { signal }: CallOptions = {},
  ): Promise<ConnectionStatus> {
    const path = pathOf(sessionId, name);
    return sendJson(this.#transport, { method: "PUT", path, body: request, repeatable: true, signal });
  }

  /**
   * Revokes a Connection for good: its secret is erased, its requests are cut, and the origin is refused for the rest of
   * the session's life. Does nothing to a revoked Connection. Rejects with `not_found` for an unknown name.
   *
   * @example
   * await client.connections.revoke(sessionId, "payments");
   */
  async revoke(sessionId: string, name: string, { signal }: CallOptions = {}): Promise<void> {
    // Hazard: after a lost answer, `not_found` must not count as done. It means that the name is wrong, and that a
    // credential is still in use.
    const path = pathOf(sessionId, name);
    await send(this.#transport, { method: "DELETE", path, repeatable: true, signal });
  }
}

/** Connections of one session, as `client.session(id).connections`: the calls of `client.connections` without its id. */
export class SessionConnections {
  readonly #connections: Connections;
  readonly #sessionId: string;

  constructor(transport: Transport, sessionId: string) {
    this.#connections = new Connections(transport);
    this.#sessionId = sessionId;
  }

  /** The Connections of the session, as `client.connections.list` returns them. */
  list(options: CallOptions = {}): Promise<ConnectionList> {
    return this.#connections.list(this.#sessionId, options);
  }

  /** Adds a Connection, as `client.connections.create` does. */
  create(request: ConnectionCreate, options: CallOptions = {}): Promise<ConnectionStatus> {
    return this.#connections.create(this.#sessionId, request, options);
  }

  /** Replaces a Connection as a whole, as `client.connections.replace` does. */
  replace(name: string, request: ConnectionReplace, options: CallOptions = {}): Promise<ConnectionStatus> {
    return this.#connections.replace(this.#sessionId, name, request, options);
  }

  /** Revokes a Connection for good, as `client.connections.revoke` does. */
  revoke(name: string, options: CallOptions = {}): Promise<void> {
    return this.#connections.revoke(this.#sessionId, name, options);
  }
}

function pathOf(sessionId: string, name?: string): string {
  return sessionPath(sessionId, `/connections${name === undefined ? "" : `/${encodeURIComponent(name)}`}`);
}
