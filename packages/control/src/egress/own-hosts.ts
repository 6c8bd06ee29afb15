import { networkInterfaces } from "node:os";
import type { PreviewSite } from "../sessions/preview-urls.ts";
import type { OwnHosts } from "./entry.ts";

/** The addresses of this host, the domain of its previews, and the ranges that the operator closes: no egress policy may list them. */
export function ownHostsOf(config: { previewSite: PreviewSite; neverRanges: string[] }): OwnHosts {
  const addresses = Object.values(networkInterfaces()).flatMap((given) => given ?? []);
  return {
    names: [config.previewSite.domain],
    addresses: addresses.filter(({ family }) => family === "IPv4").map(({ address }) => address),
    ranges: config.neverRanges,
  };
}
