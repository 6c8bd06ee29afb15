/** Finds the visitor's address and scheme, which only the operator's proxies are trusted to forward. */
import { BlockList, isIP } from "node:net";
import { valuesOf } from "@vivarium/http1/headers";
import { plainAddress } from "@vivarium/http1/peer-limit";
import type { Visit } from "./visit.ts";

export type IsTrustedProxy = (address: string) => boolean;

/** Takes IPv4 and IPv6 addresses and ranges. Throws for any other entry. */
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
 * The peer's address. If the peer is a trusted proxy: the rightmost address in X-Forwarded-For that is not a trusted
 * proxy, since everything left of it may be forged; the peer's if there is no such address or it cannot be read.
 */
export function visitorAddress(visit: Visit, peer: string, isTrusted: IsTrustedProxy): string {
  const connected = plainAddress(peer);
  if (!isTrusted(connected)) return connected;
  const claimed = valuesOf(visit.headers, "x-forwarded-for")
    .flatMap((value) => value.split(","))
    .map((text) => plainAddress(text.trim()));
  const visitor = claimed.findLast((address) => !isTrusted(address));
  return visitor !== undefined && isAddress(visitor) ? visitor : connected;
}

/** The scheme that a trusted proxy forwards; undefined without exactly one such header. */
export function visitorScheme(
  visit: Visit,
  peer: string,
  isTrusted: IsTrustedProxy,
): "http" | "https" | undefined {
  if (!isTrusted(plainAddress(peer))) return undefined;
  const [claimed, ...others] = valuesOf(visit.headers, "x-forwarded-proto");
  const scheme = claimed?.trim().toLowerCase();
  return others.length === 0 && (scheme === "http" || scheme === "https") ? scheme : undefined;
}

/** False for an IPv6 address with a zone (`%eth0`), which has a meaning on its own host only. */
function isAddress(text: string): boolean {
  return isIP(text) !== 0 && !text.includes("%");
}
