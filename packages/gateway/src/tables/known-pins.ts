/** Remembers which addresses were opened (pinned) for one machine, for the `host:port` entries of its policy. */

/** Remembered pins, as many as the node opens for one machine. A forgotten pin is requested again. */
const MOST_KEPT = 4096;

interface KnownPin {
  /** When the pin ends, in milliseconds of `performance.now()`. */
  until: number;
  /** Resolves to whether the kernel has opened the address; never rejects. */
  isOpen: Promise<boolean>;
}

export class KnownPins {
  readonly #byName = new Map<string, KnownPin>();

  /** The pin of this address; undefined when it is missing or ends before `until`. */
  find(host: string, address: string, until: number): Promise<boolean> | undefined {
    const pin = this.#byName.get(keyOf(host, address));
    return pin !== undefined && pin.until >= until ? pin.isOpen : undefined;
  }

  add(host: string, addresses: string[], pin: KnownPin): void {
    const keys = addresses.map((address) => keyOf(host, address));
    for (const key of keys) {
      this.#byName.delete(key);
      this.#byName.set(key, pin);
      const oldest = this.#byName.keys().next().value;
      if (this.#byName.size > MOST_KEPT && oldest !== undefined) this.#byName.delete(oldest);
    }
    void pin.isOpen.then((isOpen) => {
      if (isOpen) return;
      for (const key of keys) if (this.#byName.get(key) === pin) this.#byName.delete(key);
    });
  }

  clear(): void {
    this.#byName.clear();
  }
}

const keyOf = (host: string, address: string) => `${host} ${address}`;
