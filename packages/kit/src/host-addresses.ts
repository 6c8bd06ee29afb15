import { networkInterfaces } from "node:os";

/** The IPv4 addresses of this host's interfaces, loopback included. */
export function ipv4AddressesOfHost(): string[] {
  const addresses = Object.values(networkInterfaces()).flatMap((given) => given ?? []);
  return addresses.filter(({ family }) => family === "IPv4").map(({ address }) => address);
}
