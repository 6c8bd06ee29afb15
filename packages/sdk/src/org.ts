/** `client.org`, the settings of the organisation. */
import type { OrgEgressCap, OrgEgressCapPut } from "@vivarium/contract/api";
import { type CallOptions, getJson, sendJson, type Transport } from "./transport.ts";

const CAP_PATH = "/v1/org/egress-cap";

/** Settings for all sessions of the organisation that the key belongs to. Reached as `client.org`. */
export class Org {
  /** Daily egress cap of all sessions together. */
  readonly cap: OrgCap;

  constructor(transport: Transport) {
    this.cap = new OrgCap(transport);
  }
}

/** Daily egress cap of all sessions of the organisation together. Reached as `client.org.cap`. */
export class OrgCap {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * The cap in force in bytes (0 means no cap), whether the organisation chose it (`override`), and the bytes that its
   * sessions sent on the UTC day `date`.
   *
   * @example
   * const { cap_bytes, today_bytes } = await client.org.cap.get();
   */
  get(options: CallOptions = {}): Promise<OrgEgressCap> {
    return getJson(this.#transport, CAP_PATH, options);
  }

  /**
   * Sets the daily cap in bytes; 0 removes it, `null` returns to the operator's default. Over the cap, sessions are
   * paused within seconds, and calls that would start or wake one are refused with `egress_capped`, until 00:00 UTC or a
   * higher cap. Rejects with `forbidden` for a key of one project, `validation` over the operator's limit.
   *
   * @example
   * await client.org.cap.set(100 * 1024 ** 3);
   */
  set(bytes: number | null, { signal }: CallOptions = {}): Promise<OrgEgressCap> {
    const body: OrgEgressCapPut = { cap_bytes: bytes };
    return sendJson(this.#transport, { method: "PUT", path: CAP_PATH, body, repeatable: true, signal });
  }
}
