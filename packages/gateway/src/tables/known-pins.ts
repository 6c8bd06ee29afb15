/** The addresses that the kernel lets one machine reach, or is about to, for `host:port` entries of one policy generation. */

/** As many as the node opens for one machine. A forgotten one is only requested once more. */
const MOST_KEPT = 4096;

interface KnownPin {
  /** Milliseconds of `performance.now()`. */
  until: number;
  /** Whether the kernel has it; never rejects. */
  isOpen: Promise<boolean>;
}

export class KnownPins {
  readonly #byName = new Map<string, KnownPin>();

  /** Undefined when none lasts until then. */
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
