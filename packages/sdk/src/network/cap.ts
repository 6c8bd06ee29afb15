import type { EgressCap, SessionPatch } from "@vivarium/contract/api";
import { type CallOptions, getJson, sendJson, sessionPath, type Transport } from "../transport.ts";

/** Daily cap of one session (docs/spec/network.md). Reached as `client.session(id).cap`. Never wakes the session. */
export class Cap {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId);
  }

  /**
   * The cap (0: none), and the bytes sent on the UTC day `date`.
   *
   * @example
   * const { egress_cap_bytes, today_bytes } = await session.cap.get();
   */
  get(options: CallOptions = {}): Promise<EgressCap> {
    return getJson(this.#transport, `${this.#path}/egress-cap`, options);
  }

  /**
   * Sets the cap, or clears it with 0. It takes effect within seconds. A session that has reached it stays live and
   * sends nothing until 00:00 UTC, or until the cap is higher. `wakeOnHttp` says whether visitors of its previews wake
   * the session; without it, the setting stays as it is.
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
