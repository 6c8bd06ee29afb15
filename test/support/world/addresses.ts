/** Addresses and ports of the world: all addresses are routed to it and run the same servers. */

/** Public addresses that lead only to the world while it runs. */
export const PUBLIC = {
  /** Name server that the service under test uses. */
  resolver: "45.90.28.53",
  /** Name server that is not configured anywhere. */
  strangeResolver: "45.90.28.66",
  allowed: "45.90.28.10",
  second: "45.90.28.11",
  /** Its port 443 has the gRPC origin in place of the web server. */
  grpc: "45.90.28.12",
  denied: "45.90.28.20",
  mail: "45.90.28.25",
  bulk: "45.90.28.30",
  moved: "45.90.28.40",
} as const;

/** Addresses that no guest may ever reach: private networks and the metadata services of clouds. */
export const NEVER = {
  ten: "10.66.0.10",
  oneNineTwo: "192.168.66.10",
  oneSevenTwo: "172.20.6.6",
  metadata: "169.254.169.254",
  otherMetadata: "100.100.100.200",
  wireServer: "168.63.129.16",
} as const;

export const ALL = [...Object.values(PUBLIC), ...Object.values(NEVER)];

/** Both ends of the link between host and world. */
export const LINK = { host: "10.66.255.1", world: "10.66.255.2" } as const;

export const PORTS = {
  /** Ports of HTTP; `tls`: of HTTPS. */
  web: [80, 8080],
  tls: [443, 8443],
  /** Ports that echo everything. */
  echo: [22, 25, 465, 587, 853, 9000],
  /** Port that discards everything. */
  sink: 9001,
  /** Port that sends endlessly. */
  source: 9002,
  udp: [7, 443, 853, 9000],
} as const;
