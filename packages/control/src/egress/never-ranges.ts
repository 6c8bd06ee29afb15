/** IPv4 addresses that no policy can open, and of which an entry would therefore promise what never happens. */
import { BlockList } from "node:net";

const NEVER_RANGES = [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 4],
  ["240.0.0.0", 4],
  // A cloud's metadata service that has a public address.
  ["168.63.129.16", 32],
] as const;

const never = new BlockList();
for (const [address, bits] of NEVER_RANGES) never.addSubnet(address, bits);

export function isNeverReachable(address: string): boolean {
  return never.check(address);
}
