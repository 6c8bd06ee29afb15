/** A limit on connections from one address, so that one client alone cannot use up all connections. */
import { isIPv6, type Socket } from "node:net";

export class PeerLimit {
  readonly #most: number;
  readonly #isShared: (address: string) => boolean;
  readonly #open = new Map<string, number>();

  constructor(most: number, isShared: (address: string) => boolean) {
    this.#most = most;
    this.#isShared = isShared;
  }

  /** False: the address has as many connections as it may. */
  admits(socket: Socket): boolean {
    const address = plainAddress(socket.remoteAddress ?? "");
    if (this.#isShared(address)) return true;
    const network = networkOf(address);
    const open = this.#open.get(network) ?? 0;
    if (open >= this.#most) return false;
    this.#open.set(network, open + 1);
    socket.once("close", () => this.#close(network));
    return true;
  }

  #close(network: string): void {
    const open = (this.#open.get(network) ?? 1) - 1;
    if (open === 0) this.#open.delete(network);
    else this.#open.set(network, open);
  }
}

/** The address by which a client is counted: its IPv4 address, or its IPv6 /64, all of which it usually has. */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const [before = [], after = []] = address.split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = Array<string>(Math.max(0, 8 - before.length - after.length)).fill("0");
  return [...before, ...zeros, ...after].slice(0, 4).join(":");
}

/** Turns `::ffff:a.b.c.d`, as a socket for both families writes IPv4, into `a.b.c.d`. */
export function plainAddress(text: string): string {
  return text.replace(/^::ffff:(?=[0-9.]+$)/i, "");
}
