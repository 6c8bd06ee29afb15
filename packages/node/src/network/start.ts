/** Builds this node's network from what the host and the configuration say. */
import type { Log } from "@vivarium/kit/log";
import type { HostNetwork } from "../host/host-network.ts";
import { EgressLog } from "./egress-log.ts";
import { GatewayLink } from "./gateway-link.ts";
import { Networks, type NetworksInit } from "./networks.ts";
import type { NodeNetwork } from "./node-network.ts";
import { Previews } from "./previews.ts";
import { inRanges } from "./ranges.ts";
import { Reporter } from "./report.ts";
import { Wakes } from "./wakes.ts";

interface NetworkInit extends Omit<NetworksInit, "link"> {
  host: HostNetwork;
  /** How long a gateway of before this start may take to come back. */
  expectGatewayMs: number;
  log: Log;
}

export function createNetwork(init: NetworkInit): NodeNetwork {
  const { host, expectGatewayMs, log: say } = init;
  const previews = new Previews();
  const link: GatewayLink = new GatewayLink({
    expectGatewayMs,
    compose: (version) => ({
      version,
      slots: networks.toGatewaySlots(),
      routes: previews.routes,
      never: host.never,
      resolvers: host.resolvers,
    }),
  });
  const networks = new Networks({ ...init, link });
  const log = new EgressLog();
  const reporter = new Reporter({ networks, log, isNever: inRanges(host.never), say });
  return { networks, link, previews, wakes: new Wakes(), log, reporter };
}
