/**
 * Ranges `a.b.c.d/n` that no session reaches, whatever its policy: private, loopback, link-local, metadata, multicast,
 * reserved, and those for carrier NAT, documentation and tests. Control refuses policy entries in them.
 */
export const NEVER_RANGES: readonly string[] = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  // Azure's metadata and host services, which have a public address.
  "168.63.129.16/32",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
];

/** Private ranges, of which the operator may open addresses to sessions (`VIV_PRIVATE_OPEN`). */
const PRIVATE_RANGES = ["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"];

/** The ranges that the operator may open, and those within them that stay closed. */
export const OPENING_RULES = {
  openable: PRIVATE_RANGES as readonly string[],
  closed: [
    ...NEVER_RANGES.filter((range) => !PRIVATE_RANGES.includes(range)),
    // Alibaba's metadata service.
    "100.100.100.200/32",
    // Addresses of every guest and its gateway, and the links of machines, where the gateway listens.
    "10.200.0.0/30",
    "10.220.0.0/16",
  ] as readonly string[],
  /** Questions for names always go to the service's own name server, and DNS over TLS is refused. */
  closedPorts: [53, 853] as readonly number[],
};
