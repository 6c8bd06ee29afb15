/** `session.cap`, the daily egress cap of a session. */
import type { EgressCap, SessionPatch } from "@vivarium/contract/api";
import { type CallOptions, getJson, sendJson, sessionPath, type Transport } from "../transport.ts";

/** Daily egress cap of one session (docs/spec/network.md), as `client.session(id).cap`. Never wakes the session. */
export class Cap {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId);
  }

  /**
   * The cap in bytes (0 means no cap), and the bytes sent on the UTC day `date`.
   *
   * @example
   * const { egress_cap_bytes, today_bytes } = await session.cap.get();
   */
  get(options: CallOptions = {}): Promise<EgressCap> {
    return getJson(this.#transport, `${this.#path}/egress-cap`, options);
  }

  /**
   * Sets the daily cap in bytes; 0 removes it. The cap takes effect within seconds. A session that has reached its cap
   * stays live, but everything it sends is dropped until 00:00 UTC or a higher cap. `wakeOnHttp` sets whether visitors
   * of its previews wake the session; without this option the setting stays.
   *
   * @example
   * await session.cap.set(100 * 1024 * 1024);
   */
  set(bytes: number, options: CallOptions & { wakeOnHttp?: boolean } = {}): Promise<EgressCap> {
    const { wakeOnHttp, signal } = options;
    const body: SessionPatch = { egress_cap_bytes: bytes, wake_on_http: wakeOnHttp };
    return sendJson(this.#transport, { method: "PATCH", path: this.#path, body, repeatable: true, signal });
  }
}
