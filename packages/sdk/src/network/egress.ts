import type { EgressLog, EgressLogEntry, EgressPolicy, SessionEgress } from "@vivarium/contract/api";
import { paginate } from "../paginator.ts";
import { type CallOptions, getJson, postJson, sessionPath, type Transport } from "../transport.ts";

/** Filter of an egress log; without one, all lines. */
export interface EgressLogFilter {
  /** Not older than this. */
  since?: Date | string;
  /** Only allowed lines, or only refused ones. */
  decision?: EgressLogEntry["decision"];
  /** Only this host name, in any case of letters. */
  host?: string;
  /** Lines of one request. Default: 50; at most 200. */
  pageSize?: number;
}

/**
 * Egress policy and log of one session (docs/spec/network.md), as `client.session(id).egress`. Never wakes the session.
 */
export class Egress {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId, "/egress");
  }

  /**
   * The policy in force, its entries as the service writes them. A session that was created without one has mode `allow`.
   *
   * @example
   * const { mode, allow } = await session.egress.get();
   */
  get(options: CallOptions = {}): Promise<SessionEgress> {
    return getJson(this.#transport, this.#path, options);
  }

  /**
   * Replaces the whole policy. It is in force when the promise resolves: connections that it does not allow are cut,
   * the others live on. In mode `deny` only the entries of `allow` can be reached: `host`, `host:port`, `*.host`, an
   * IPv4 address, each with or without a port; without entries nothing can, not even DNS. When an entry is refused with
   * `validation`, whose message names it, the old policy stays.
   *
   * @example
   * await session.egress.set({ mode: "deny", allow: ["pypi.org", "files.pythonhosted.org"] });
   */
  set(policy: EgressPolicy, options: CallOptions = {}): Promise<SessionEgress> {
    return postJson(this.#transport, this.#path, policy, { ...options, repeatable: true });
  }

  /**
   * Log of the session's egress, newest first, fetched page by page: connections that ended, refusals and DNS
   * questions. Kept for 7 days, the newest 10,000 of each kind (allowed or refused, connections or questions), also
   * when the session has ended.
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
