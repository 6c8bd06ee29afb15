/**
 * Addresses that the gateway resolved for entries `host:port` of one machine, by name: several names may share an
 * address, and a flow may outlive the pin it was opened under.
 */
import type { Pin } from "@vivarium/contract/gateway";

/** As many as the kernel's set has room for. */
const MOST_OPEN = 4096;

/** What the kernel is told of a pin. */
export interface LearnedElement {
  address: string;
  port: number;
  ttlS: number;
}

/** A pin as a later process of this daemon is told it. */
export interface KeptPin {
  host: string;
  address: string;
  port: number;
  /** A time of day, in milliseconds. */
  until: number;
}

interface Pinned {
  address: string;
  port: number;
  /** Until when, in milliseconds of `performance.now()`, by name; what has ended is known on for flows that go on. */
  hosts: Map<string, number>;
}

/** What a policy leaves of the pins. */
export interface KeptPins {
  /** Open for the rest of their time. */
  learned: LearnedElement[];
  /** Where flows that are open already may go on. */
  lasting: Pick<LearnedElement, "address" | "port">[];
}

export class Pins {
  readonly #known = new Map<string, Pinned>();

  /** Whether the kernel may be told of these beside those that are open. */
  admits(pins: Pin[], now = performance.now()): boolean {
    return this.#count((until) => until > now) + sizeOf(pins) <= MOST_OPEN;
  }

  /** What the kernel is to be told of them. */
  add(pins: Pin[], now = performance.now()): LearnedElement[] {
    const touched = new Map<string, Pinned>();
    for (const { host, addresses, ports, ttl_s } of pins) {
      for (const [address, port] of addresses.flatMap((address) =>
        ports.map((port) => [address, port] as const),
      )) {
        const key = keyOf(address, port);
        const pinned = this.#known.get(key) ?? { address, port, hosts: new Map<string, number>() };
        const name = host.toLowerCase();
        const until = Math.max(pinned.hosts.get(name) ?? 0, now + ttl_s * 1000);
        pinned.hosts.delete(name);
        pinned.hosts.set(name, until);
        this.#known.set(key, pinned);
        touched.set(key, pinned);
      }
    }
    if (this.#count(() => true) > MOST_OPEN) this.#forget((_pinned, _host, until) => until <= now);
    return [...touched.values()].flatMap((pinned) => learnedOf(pinned, now));
  }

  /** Those of an earlier process: its flows go on, and its kernel has what is open. */
  restore(kept: readonly KeptPin[], now = performance.now(), today = Date.now()): void {
    for (const { host, address, port, until } of kept) {
      const key = keyOf(address, port);
      const pinned = this.#known.get(key) ?? { address, port, hosts: new Map<string, number>() };
      this.#known.set(key, { ...pinned, hosts: pinned.hosts.set(host, until - today + now) });
    }
  }

  all(now = performance.now(), today = Date.now()): KeptPin[] {
    return [...this.#known.values()].flatMap(({ address, port, hosts }) =>
      [...hosts].map(([host, until]) => ({ host, address, port, until: until - now + today })),
    );
  }

  /** What a policy leaves of them; the rest is forgotten. */
  keep(isAllowed: (host: string, port: number) => boolean, now = performance.now()): KeptPins {
    this.#forget(({ port }, host) => !isAllowed(host, port));
    const kept = [...this.#known.values()];
    return {
      learned: kept.flatMap((pinned) => learnedOf(pinned, now)),
      lasting: kept.map(({ address, port }) => ({ address, port })),
    };
  }

  /** The name of them that was pinned last. */
  nameOf(address: string, port: number): string | undefined {
    return [...(this.#known.get(keyOf(address, port))?.hosts.keys() ?? [])].at(-1);
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

/** Nothing where all of its time is over. */
function learnedOf({ address, port, hosts }: Pinned, now: number): LearnedElement[] {
  const ttlS = Math.floor((Math.max(...hosts.values()) - now) / 1000);
  return ttlS > 0 ? [{ address, port, ttlS }] : [];
}

function sizeOf(pins: Pin[]): number {
  return pins.reduce((sum, { addresses, ports }) => sum + addresses.length * ports.length, 0);
}

const keyOf = (address: string, port: number) => `${address}:${port}`;
