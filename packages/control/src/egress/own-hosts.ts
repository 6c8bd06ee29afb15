import { networkInterfaces } from "node:os";
import type { PreviewSite } from "../sessions/preview-urls.ts";
import type { OwnHosts } from "./entry.ts";

/** This host, the names of its previews, and what the operator says is of the deployment. */
export function ownHostsOf({
  previewSite,
  neverRanges,
}: {
  previewSite: PreviewSite;
  neverRanges: string[];
}): OwnHosts {
  const addresses = Object.values(networkInterfaces()).flatMap((given) => given ?? []);
  return {
    names: [previewSite.domain],
    addresses: addresses.filter(({ family }) => family === "IPv4").map(({ address }) => address),
    ranges: neverRanges,
  };
}
