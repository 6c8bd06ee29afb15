/** The parts of this node's network that other folders use. */
import type { Connections } from "./connections.ts";
import type { EgressLog } from "./egress-log.ts";
import type { GatewayLink } from "./gateway-link.ts";
import type { Networks } from "./networks.ts";
import type { Previews } from "./previews.ts";
import type { Reporter } from "./report.ts";
import type { WakeRequests } from "./wake-requests.ts";

export interface NodeNetwork {
  networks: Networks;
  link: GatewayLink;
  connections: Connections;
  previews: Previews;
  wakes: WakeRequests;
  log: EgressLog;
  reporter: Reporter;
}
