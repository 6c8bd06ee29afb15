import { networkInterfaces } from "node:os";
import type { PreviewSite } from "../previews/urls.ts";
import type { OwnHosts } from "./entry.ts";

/** This host, and the names of its previews. */
export function ownHostsOf({ domain }: PreviewSite): OwnHosts {
  const addresses = Object.values(networkInterfaces()).flatMap((given) => given ?? []);
  return {
    names: [domain],
    addresses: addresses.filter(({ family }) => family === "IPv4").map(({ address }) => address),
  };
}
