/**
 * The pins of one machine, which are addresses that the gateway resolved for `host:port` entries. They are kept by
 * name, because several names may share an address, and a flow may outlive its pin.
 */
import type { Pin } from "@vivarium/contract/gateway";

/** Most pins of a machine: the size of the kernel's set `learned`. */
const MOST_OPEN = 4096;

/** A pin as an element of the kernel's set `learned`. */
export interface LearnedElement {
  address: string;
  port: number;
  ttlS: number;
}

/** A pin as it is written to disk for the next process of this daemon. */
export interface KeptPin {
  host: string;
  address: string;
  port: number;
  /** Expiry in milliseconds since 1970. */
  until: number;
}

interface Pinned {
  address: string;
  port: number;
  /** Expiry by name, in milliseconds of `performance.now()`. Expired names stay, because their flows may be open. */
  hosts: Map<string, number>;
}

/** The pins that remain under a policy. */
export interface KeptPins {
  /** Pins that have not expired, and admit new flows until then. */
  learned: LearnedElement[];
  /** Targets to which open flows may continue, although their pin may have expired. */
  lasting: Pick<LearnedElement, "address" | "port">[];
}

export class Pins {
  readonly #known = new Map<string, Pinned>();

  /** Whether these pins fit into the kernel's set, besides those that have not expired. */
  admits(pins: Pin[], now = performance.now()): boolean {
    const added = pins.reduce((sum, { addresses, ports }) => sum + addresses.length * ports.length, 0);
    return this.#count((until) => until > now) + added <= MOST_OPEN;
  }

  /** Adds pins and returns the elements to load into the kernel. */
  add(pins: Pin[], now = performance.now()): LearnedElement[] {
    const touched = new Set<Pinned>();
    for (const { host, addresses, ports, ttl_s } of pins) {
      const name = host.toLowerCase();
      for (const pinned of addresses.flatMap((address) => ports.map((port) => this.#pinned(address, port)))) {
        const until = Math.max(pinned.hosts.get(name) ?? 0, now + ttl_s * 1000);
        pinned.hosts.delete(name);
        pinned.hosts.set(name, until);
        touched.add(pinned);
      }
    }
    if (this.#count(() => true) > MOST_OPEN) this.#forget((_pinned, _host, until) => until <= now);
    return [...touched].flatMap((pinned) => learnedOf(pinned, now));
  }

  /** Adds pins of an earlier process. The kernel still has those that have not expired. */
  restore(kept: readonly KeptPin[], now = performance.now(), today = Date.now()): void {
    for (const { host, address, port, until } of kept)
      this.#pinned(address, port).hosts.set(host, until - today + now);
  }

  all(now = performance.now(), today = Date.now()): KeptPin[] {
    return [...this.#known.values()].flatMap(({ address, port, hosts }) =>
      [...hosts].map(([host, until]) => ({ host, address, port, until: until - now + today })),
    );
  }

  /** Forgets all pins that the policy does not allow, and returns the rest. */
  keep(isAllowed: (host: string, port: number) => boolean, now = performance.now()): KeptPins {
    this.#forget(({ port }, host) => !isAllowed(host, port));
    const kept = [...this.#known.values()];
    return {
      learned: kept.flatMap((pinned) => learnedOf(pinned, now)),
      lasting: kept.map(({ address, port }) => ({ address, port })),
    };
  }

  /** The name that was pinned last for this address and port. */
  nameOf(address: string, port: number): string | undefined {
    return [...(this.#known.get(keyOf(address, port))?.hosts.keys() ?? [])].at(-1);
  }

  #pinned(address: string, port: number): Pinned {
    const key = keyOf(address, port);
    const pinned = this.#known.get(key) ?? { address, port, hosts: new Map<string, number>() };
    this.#known.set(key, pinned);
    return pinned;
  }

  #count(counts: (until: number) => boolean): number {
    let count = 0;
    for (const { hosts } of this.#known.values())
      for (const until of hosts.values()) if (counts(until)) count++;
    return count;
  }

  #forget(isOver: (pinned: Pinned, host: string, until: number) => boolean): void {
    for (const [key, pinned] of this.#known) {
      for (const [host, until] of pinned.hosts) if (isOver(pinned, host, until)) pinned.hosts.delete(host);
      if (pinned.hosts.size === 0) this.#known.delete(key);
    }
  }
}

/** The element for the kernel; none if the pin has expired for all its names. */
function learnedOf({ address, port, hosts }: Pinned, now: number): LearnedElement[] {
  const ttlS = Math.floor((Math.max(...hosts.values()) - now) / 1000);
  return ttlS > 0 ? [{ address, port, ttlS }] : [];
}

const keyOf = (address: string, port: number) => `${address}:${port}`;
