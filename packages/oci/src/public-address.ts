/** Separates public addresses from those of private networks, of this host, and of the services beside it. */
import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Ranges that a library of addresses calls ordinary. */
const NOT_PUBLIC = [
  // Azure's metadata and host services.
  "168.63.129.16/32",
  // Formerly anycast relays to IPv6, and networks of tests.
  "192.88.99.0/24",
  "198.18.0.0/15",
].map((range) => ipaddr.IPv4.parseCIDR(range));

const [PUBLIC_IPV6, PUBLIC_IPV6_BITS] = ipaddr.IPv6.parseCIDR("2000::/3");

/** Whether an address, not a name, is one of the internet. IPv4 addresses inside of IPv6 ones count as not public. */
export function isPublicAddress(address: string): boolean {
  if (!isIP(address)) return false;
  const parsed = ipaddr.parse(address);
  if (parsed.range() !== "unicast") return false;
  if (parsed.kind() === "ipv6") return parsed.match(PUBLIC_IPV6, PUBLIC_IPV6_BITS);
  return !NOT_PUBLIC.some((range) => parsed.match(range));
}

/** Whether the host of a reference may be public: false for private addresses and for names of this host alone. */
export function mayBePublic(host: string): boolean {
  if (isIP(host)) return isPublicAddress(host);
  return host.includes(".") && !/(^|\.)(localhost|local|internal|localdomain|home\.arpa)$/.test(host);
}
