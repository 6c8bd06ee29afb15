/** Connects to hosts, by default only where all addresses of a name are public, and at an address that was checked. */
import { lookup as lookupName } from "node:dns/promises";
import { once } from "node:events";
import { connect, isIP, type Socket } from "node:net";
import { isPublicAddress } from "./public-address.ts";
import { RegistryError } from "./registry-error.ts";

/** Time for one of several addresses. */
const ATTEMPT_MS = 5_000;

/** Opens a TCP connection to a host by its name. */
export type Dial = (host: string, port: number, signal: AbortSignal) => Promise<Socket>;

export interface DialRules {
  /** All addresses of a name. */
  lookup: (host: string) => Promise<string[]>;
  mayDial: (address: string, port: number) => boolean;
}

/** Dials the internet alone. */
export const dialPublic: Dial = makeDial({ lookup: lookupAll, mayDial: isPublicAddress });

/** Dials the internet, without the addresses that `isForbidden`. */
export function dialPublicExcept(isForbidden: (address: string) => boolean): Dial {
  const mayDial = (address: string) => isPublicAddress(address) && !isForbidden(address);
  return makeDial({ lookup: lookupAll, mayDial });
}

/**
 * A name is resolved once for each connection, and the connection is made to an address of that answer: a name that
 * changes its address in between gains nothing. One forbidden address spoils the whole answer.
 */
export function makeDial({ lookup, mayDial }: DialRules): Dial {
  return async (host, port, signal) => {
    const addresses = isIP(host) ? [host] : await resolve(lookup, host);
    const forbidden = addresses.find((address) => !mayDial(address, port));
    if (forbidden !== undefined)
      throw new RegistryError("address_refused", `${host} has an address that may not be connected`);
    return await connectToOne(host, port, addresses, signal);
  };
}

async function resolve(lookup: DialRules["lookup"], host: string): Promise<string[]> {
  let addresses: string[];
  try {
    addresses = await lookup(host);
  } catch (error) {
    throw new RegistryError("unreachable", `${host} was not found in the DNS`, {
      cause: error,
      isTransient: true,
    });
  }
  if (addresses.length === 0) throw new RegistryError("unreachable", `${host} has no address`);
  return addresses;
}

async function connectToOne(
  host: string,
  port: number,
  addresses: readonly string[],
  signal: AbortSignal,
): Promise<Socket> {
  let why: unknown;
  for (const address of addresses) {
    signal.throwIfAborted();
    const socket = connect({ host: address, port, noDelay: true });
    try {
      await once(socket, "connect", { signal: AbortSignal.any([signal, AbortSignal.timeout(ATTEMPT_MS)]) });
      return socket;
    } catch (error) {
      socket.destroy();
      why = error;
    }
  }
  signal.throwIfAborted();
  throw new RegistryError("unreachable", `${host}:${port} does not accept connections`, {
    cause: why,
    isTransient: true,
  });
}

async function lookupAll(host: string): Promise<string[]> {
  return (await lookupName(host, { all: true, order: "ipv4first" })).map(({ address }) => address);
}
