/**
 * The node's end of the link to its gateway, with the versions of the tables that it sent and that the gateway
 * confirmed. Tables are composed when they are sent, so that many changes at once are sent once.
 */
import type { GatewayTables } from "@vivarium/contract/gateway";
import { endsWithin } from "@vivarium/kit/clock";

/** The connection of a gateway, which takes lines. */
export interface GatewayConnection {
  /** False when it cannot take another line now; it calls `GatewayLink.ready` once it can. */
  send(line: string): boolean;
  close(): void;
}

export class GatewayLink {
  readonly #compose: (version: number) => GatewayTables;
  /** Time until which a gateway that outlived the daemon's last process may reconnect (`performance.now()`). */
  readonly #expectedUntil: number;
  #version = 1;
  #sentVersion = 0;
  #appliedVersion = 0;
  #connection: GatewayConnection | undefined;
  #everConnected = false;
  #isBlocked = false;
  #change = Promise.withResolvers<void>();

  constructor(init: { compose: (version: number) => GatewayTables; expectGatewayMs: number }) {
    this.#compose = init.compose;
    this.#expectedUntil = performance.now() + init.expectGatewayMs;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  /** Call after a change of the tables. Returns the version that contains it. */
  publish(): number {
    setImmediate(() => this.#sendNow());
    return ++this.#version;
  }

  /** The newest connection is the gateway. Confirmations of an older connection do not count for it. */
  connect(connection: GatewayConnection): void {
    this.#connection?.close();
    this.#connection = connection;
    this.#everConnected = true;
    this.#isBlocked = false;
    this.#sentVersion = 0;
    this.#appliedVersion = 0;
    this.#sendNow();
    this.#wake();
  }

  disconnect(connection: GatewayConnection): void {
    if (this.#connection === connection) this.#connection = undefined;
  }

  /** Call when the connection can take another line. */
  ready(connection: GatewayConnection): void {
    if (this.#connection !== connection) return;
    this.#isBlocked = false;
    this.#sendNow();
  }

  applied(version: number): void {
    this.#appliedVersion = Math.max(this.#appliedVersion, Math.min(version, this.#sentVersion));
    this.#wake();
  }

  /** Whether the gateway confirms this version, or a later one, in time. */
  async confirmed(version: number, limitMs: number): Promise<boolean> {
    return await endsWithin(limitMs, this.#reached(version));
  }

  /**
   * Resolves once no gateway uses tables older than this version: it confirmed, or none ever connected. A gateway
   * that is disconnected may still use its last tables.
   */
  async outdated(version: number): Promise<void> {
    const graceMs = this.#expectedUntil - performance.now();
    if (!this.#everConnected && graceMs > 0) await endsWithin(graceMs, this.#change.promise);
    if (this.#everConnected) await this.#reached(version);
  }

  async #reached(version: number): Promise<void> {
    while (this.#appliedVersion < version) await this.#change.promise;
  }

  #wake(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }

  /** Sends the newest tables. After many changes at once, the first call sends all and the others nothing. */
  #sendNow(): void {
    if (!this.#connection || this.#isBlocked || this.#sentVersion === this.#version) return;
    this.#sentVersion = this.#version;
    this.#isBlocked = !this.#connection.send(JSON.stringify(this.#compose(this.#version)));
  }
}
