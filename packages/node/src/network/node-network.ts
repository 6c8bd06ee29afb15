/** Everything of this node's network that others use. */
import type { EgressLog } from "./egress-log.ts";
import type { GatewayLink } from "./gateway-link.ts";
import type { Networks } from "./networks.ts";
import type { Previews } from "./previews.ts";
import type { Reporter } from "./report.ts";
import type { Wakes } from "./wakes.ts";

export interface NodeNetwork {
  networks: Networks;
  link: GatewayLink;
  previews: Previews;
  wakes: Wakes;
  log: EgressLog;
  reporter: Reporter;
}
