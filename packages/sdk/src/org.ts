import { OrgCap } from "./network/org-cap.ts";
import type { Transport } from "./transport.ts";

/** Settings for all sessions of the organisation that the key belongs to. Reached as `client.org`. */
export class Org {
  /** How much all sessions may send in a day. */
  readonly cap: OrgCap;

  constructor(transport: Transport) {
    this.cap = new OrgCap(transport);
  }
}
