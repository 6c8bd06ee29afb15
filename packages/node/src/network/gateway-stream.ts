/**
 * An endless stream of numbered lines to the gateway: its connection, its back-pressure, and the number up to which the
 * gateway confirmed the lines.
 */
import { endsWithin } from "@vivarium/kit/clock";

/** The connection of a gateway, which takes lines. */
export interface GatewayConnection {
  /** False when it cannot take another line now; it calls `GatewayStream.ready` once it can. */
  send(line: string): boolean;
  close(): void;
}

/** Composes lines when they can be sent, so that many changes at once are sent once. */
export interface LineSource {
  /** Called for a new connection, which was sent nothing yet. */
  restart(): void;
  /** Undefined when the gateway was sent everything. A line without a number is not confirmed. */
  next(): { text: string; number?: number } | undefined;
}

export class GatewayStream {
  readonly #source: LineSource;
  #connection: GatewayConnection | undefined;
  #hasEverConnected = false;
  #isBlocked = false;
  #sent = 0;
  #confirmed = 0;
  #change = Promise.withResolvers<void>();

  constructor(source: LineSource) {
    this.#source = source;
  }

  get isConnected(): boolean {
    return this.#connection !== undefined;
  }

  get hasEverConnected(): boolean {
    return this.#hasEverConnected;
  }

  /** The number up to which the gateway confirmed the lines of this connection. */
  get confirmed(): number {
    return this.#confirmed;
  }

  /** The newest connection is the gateway. Confirmations of an older connection do not count for it. */
  connect(connection: GatewayConnection): void {
    this.#connection?.close();
    this.#connection = connection;
    this.#hasEverConnected = true;
    this.#isBlocked = false;
    this.#sent = 0;
    this.#confirmed = 0;
    this.#source.restart();
    this.send();
    this.#wake();
  }

  disconnect(connection: GatewayConnection): void {
    if (this.#connection === connection) this.#connection = undefined;
  }

  /** Call when the connection can take another line. */
  ready(connection: GatewayConnection): void {
    if (this.#connection !== connection) return;
    this.#isBlocked = false;
    this.send();
  }

  /** Sends the lines that the source has, as many as the connection takes. */
  send(): void {
    while (this.#connection && !this.#isBlocked) {
      const line = this.#source.next();
      if (!line) return;
      this.#sent = line.number ?? this.#sent;
      this.#isBlocked = !this.#connection.send(line.text);
    }
  }

  /** The gateway confirms all lines up to this number. */
  applied(number: number): void {
    this.#confirmed = Math.max(this.#confirmed, Math.min(number, this.#sent));
    this.#wake();
  }

  /** Resolves at the next connection or confirmation. */
  nextChange(): Promise<void> {
    return this.#change.promise;
  }

  /** Whether `isInForce` holds in time. It is evaluated again at every confirmation. */
  async holdsWithin(limitMs: number, isInForce: () => boolean): Promise<boolean> {
    return await endsWithin(limitMs, this.#untilHolds(isInForce));
  }

  async #untilHolds(isInForce: () => boolean): Promise<void> {
    while (!isInForce()) await this.#change.promise;
  }

  #wake(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers();
  }
}
