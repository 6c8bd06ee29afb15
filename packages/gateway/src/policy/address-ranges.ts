/** Compiles the IPv4 ranges that no guest may reach, and what is open of them, into a check of addresses. */
import { BlockList, isIPv4 } from "node:net";
import { isOpen, type Opening } from "@vivarium/kit/ipv4-openings";

/** Ranges that are forbidden in any case: this network, link-local (metadata services), multicast, reserved. */
const NOWHERE = ["0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"];

/** Whether this TCP port of an address is forbidden; without a port: every port of it. */
export type IsNever = (address: string, port?: number) => boolean;

/** Returns a check whether an address is forbidden. Anything that is not an IPv4 address is. */
export function compileRanges(ranges: readonly string[], open: readonly Opening[] = []): IsNever {
  const nowhere = blockList(NOWHERE);
  const never = blockList(ranges);
  return (address, port) => {
    if (!isIPv4(address) || nowhere.check(address, "ipv4")) return true;
    return never.check(address, "ipv4") && !isOpen(open, address, port);
  };
}

function blockList(ranges: readonly string[]): BlockList {
  const list = new BlockList();
  for (const range of ranges) addRange(list, range);
  return list;
}

function addRange(list: BlockList, range: string): void {
  const [network = "", bits = "32", ...rest] = range.split("/");
  const prefix = Number(bits);
  if (rest.length > 0 || !isIPv4(network) || !/^\d{1,2}$/.test(bits) || prefix > 32) {
    throw new Error(`"${range}" is no range that nothing dials; expected IPv4/prefix, such as 10.0.0.0/8`);
  }
  list.addSubnet(network, prefix, "ipv4");
}
