/** The stream of tables to the gateway. Tables are sent whole, with a version of their own at every change. */
import type { GatewayTables } from "@vivarium/contract/gateway";
import { endsWithin } from "@vivarium/kit/clock";
import { GatewayStream } from "./gateway-stream.ts";

export class GatewayLink {
  readonly stream: GatewayStream;
  /** Time until which a gateway that outlived the daemon's last process may reconnect (`performance.now()`). */
  readonly #expectedUntil: number;
  #version = 1;
  #sentVersion = 0;

  constructor(init: { compose: (version: number) => GatewayTables; expectGatewayMs: number }) {
    this.#expectedUntil = performance.now() + init.expectGatewayMs;
    this.stream = new GatewayStream({
      restart: () => {
        this.#sentVersion = 0;
      },
      next: () => {
        if (this.#sentVersion === this.#version) return undefined;
        this.#sentVersion = this.#version;
        return { number: this.#version, text: JSON.stringify(init.compose(this.#version)) };
      },
    });
  }

  get isConnected(): boolean {
    return this.stream.isConnected;
  }

  /** Call after a change of the tables. Returns the version that contains it. */
  publish(): number {
    // After many changes at once, the first call sends all and the others nothing.
    setImmediate(() => this.stream.send());
    return ++this.#version;
  }

  /** Whether the gateway confirms this version, or a later one, in time. */
  async confirmed(version: number, limitMs: number): Promise<boolean> {
    return await this.stream.holdsWithin(limitMs, () => this.stream.confirmed >= version);
  }

  /**
   * Resolves once no gateway uses tables older than this version: it confirmed, or none ever connected. A gateway
   * that is disconnected may still use its last tables.
   */
  async outdated(version: number): Promise<void> {
    const { stream } = this;
    const graceMs = this.#expectedUntil - performance.now();
    if (!stream.hasEverConnected && graceMs > 0) await endsWithin(graceMs, stream.nextChange());
    while (stream.hasEverConnected && stream.confirmed < version) await stream.nextChange();
  }
}
