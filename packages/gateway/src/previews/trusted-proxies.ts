/** Who visits, where a proxy of the operator stands between: such a proxy is believed, and nobody else. */
import { BlockList, isIP } from "node:net";
import { plainAddress } from "@vivarium/http1/peer-limit";
import { type Visit, valuesOf } from "./visit.ts";

export type IsTrustedProxy = (address: string) => boolean;

/** Addresses and ranges, IPv4 or IPv6. */
export function compileProxies(entries: readonly string[]): IsTrustedProxy {
  const list = new BlockList();
  for (const entry of entries) addEntry(list, entry);
  return (address) => {
    const family = isIP(address);
    return family !== 0 && list.check(address, family === 4 ? "ipv4" : "ipv6");
  };
}

function addEntry(list: BlockList, entry: string): void {
  const [network = "", bits, ...rest] = entry.split("/");
  const family = isIP(network);
  const most = family === 4 ? 32 : 128;
  const prefix = Number(bits ?? most);
  const isPrefix = /^[0-9]{1,3}$/.test(bits ?? String(most)) && prefix <= most;
  if (family === 0 || network.includes("%") || !isPrefix || rest.length > 0) {
    throw new Error(
      `"${entry}" is no address and no range; expected such as 10.0.0.5, 10.0.0.0/8 or fd00::/8`,
    );
  }
  list.addSubnet(network, prefix, family === 4 ? "ipv4" : "ipv6");
}

/**
 * The address that connected, unless it is a trusted proxy: then the rightmost of X-Forwarded-For that is none. What
 * stands to the left of it anybody may have written. Where that cannot be read, or names proxies alone, it is the peer.
 */
export function visitorAddress(visit: Visit, peer: string, isTrusted: IsTrustedProxy): string {
  const connected = plainAddress(peer);
  if (!isTrusted(connected)) return connected;
  const told = valuesOf(visit, "x-forwarded-for")
    .flatMap((value) => value.split(","))
    .map((text) => plainAddress(text.trim()));
  const visitor = told.findLast((address) => !isTrusted(address));
  return visitor !== undefined && isAddress(visitor) ? visitor : connected;
}

/** The scheme that a trusted proxy tells; undefined: none does, or not in one word. */
export function visitorScheme(
  visit: Visit,
  peer: string,
  isTrusted: IsTrustedProxy,
): "http" | "https" | undefined {
  if (!isTrusted(plainAddress(peer))) return undefined;
  const [told, ...others] = valuesOf(visit, "x-forwarded-proto");
  const scheme = told?.trim().toLowerCase();
  return others.length === 0 && (scheme === "http" || scheme === "https") ? scheme : undefined;
}

/** A zone means something on another host only. */
function isAddress(text: string): boolean {
  return isIP(text) !== 0 && !text.includes("%");
}
