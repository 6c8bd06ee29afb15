import type { OrgEgressCap, OrgEgressCapPut } from "@vivarium/contract/api";
import { type CallOptions, getJson, sendJson, type Transport } from "./transport.ts";

const CAP_PATH = "/v1/org/egress-cap";

/** Settings for all sessions of the organisation that the key belongs to. Reached as `client.org`. */
export class Org {
  /** How much all sessions may send in a day. */
  readonly cap: OrgCap;

  constructor(transport: Transport) {
    this.cap = new OrgCap(transport);
  }
}

/** How much all sessions of the organisation may send in a day. Reached as `client.org.cap`. */
export class OrgCap {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * The cap in force (0: none), whether the organisation chose it (`override`), and the bytes its sessions sent on the
   * UTC day `date`.
   *
   * @example
   * const { cap_bytes, today_bytes } = await client.org.cap.get();
   */
  get(options: CallOptions = {}): Promise<OrgEgressCap> {
    return getJson(this.#transport, CAP_PATH, options);
  }

  /**
   * Sets the cap; 0: none, `null`: the operator's default. Over the cap every live session is paused within seconds,
   * and calls that would start or wake one are refused with `egress_capped`, until 00:00 UTC or a higher cap.
   * `forbidden` with a key of one project, `validation` over the operator's limit.
   *
   * @example
   * await client.org.cap.set(100 * 1024 ** 3);
   */
  set(bytes: number | null, { signal }: CallOptions = {}): Promise<OrgEgressCap> {
    const body: OrgEgressCapPut = { cap_bytes: bytes };
    return sendJson(this.#transport, { method: "PUT", path: CAP_PATH, body, repeatable: true, signal });
  }
}
