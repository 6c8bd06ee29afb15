import { ipv4AddressesOfHost } from "@vivarium/kit/host-addresses";
import type { Opening } from "@vivarium/kit/ipv4-openings";
import type { PreviewSite } from "../sessions/preview-urls.ts";
import type { OwnHosts } from "./entry.ts";

/**
 * What no egress policy may list: the addresses of this host, the domain of its previews, and the ranges that the
 * operator closes. What the operator opens of private ranges may be listed.
 */
export function ownHostsOf(config: {
  previewSite: PreviewSite;
  neverRanges: string[];
  privateOpen: Opening[];
}): OwnHosts {
  return {
    names: [config.previewSite.domain],
    addresses: ipv4AddressesOfHost(),
    ranges: config.neverRanges,
    open: config.privateOpen,
  };
}
