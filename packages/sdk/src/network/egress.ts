/** `session.egress`, the egress policy and log of a session. */
import type { EgressLog, EgressLogEntry, EgressPolicy, SessionEgress } from "@vivarium/contract/api";
import { paginate } from "../paginator.ts";
import { type CallOptions, getJson, postJson, sessionPath, type Transport } from "../transport.ts";

/** Filter of an egress log; without a filter, all lines. */
export interface EgressLogFilter {
  /** Only lines that are not older than this. */
  since?: Date | string;
  /** Only allowed lines, or only refused ones. */
  decision?: EgressLogEntry["decision"];
  /** Only this host name, in any case of letters. */
  host?: string;
  /** Lines that one request fetches. Default: 50; at most 200. */
  pageSize?: number;
}

/** Egress policy and log of one session (docs/spec/network.md), as `client.session(id).egress`. Never wakes it. */
export class Egress {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId, "/egress");
  }

  /**
   * The policy in force, its entries normalised. A session that was created without a policy has mode `allow`.
   *
   * @example
   * const { mode, allow } = await session.egress.get();
   */
  get(options: CallOptions = {}): Promise<SessionEgress> {
    return getJson(this.#transport, this.#path, options);
  }

  /**
   * Replaces the whole policy. It is in force when the promise resolves: connections that it does not allow are cut,
   * others stay open. In mode `deny` only the entries of `allow` can be reached: `host`, `*.host` or an IPv4 address,
   * each with or without `:port`. Without entries nothing can be reached, not even DNS. If an entry cannot be read, the
   * call rejects with `validation`, its message names the entry, and the old policy stays.
   *
   * @example
   * await session.egress.set({ mode: "deny", allow: ["pypi.org", "files.pythonhosted.org"] });
   */
  set(policy: EgressPolicy, options: CallOptions = {}): Promise<SessionEgress> {
    return postJson(this.#transport, this.#path, policy, { ...options, repeatable: true });
  }

  /**
   * Log of the session's egress, newest first, fetched page by page: connections that have ended, refusals and DNS
   * questions. Lines are kept for 7 days, also after the session's end, but only the newest 10,000 of each kind
   * (allowed or refused, connections or questions).
   *
   * @example
   * for await (const { at, host, reason } of session.egress.log({ decision: "denied" })) console.log(at, host, reason);
   */
  log(filter: EgressLogFilter = {}, options: CallOptions = {}): AsyncGenerator<EgressLogEntry, void, void> {
    const { decision, host, pageSize: limit } = filter;
    const since = filter.since instanceof Date ? filter.since.toISOString() : filter.since;
    const query = { since, decision, host, limit };
    return paginate("entries", (cursor) =>
      getJson<EgressLog>(this.#transport, `${this.#path}-log`, options, { ...query, cursor }),
    );
  }
}
