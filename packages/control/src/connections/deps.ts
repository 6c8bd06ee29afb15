/** Dependencies of the functions of Connections. */
import type { EgressDeps } from "../egress/deps.ts";
import type { Keyring } from "../secrets/keyring.ts";

export interface ConnectionDeps extends EgressDeps {
  keyring: Keyring;
}
