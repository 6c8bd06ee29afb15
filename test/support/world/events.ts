/** An entry of the log of everything that reached the world; all its servers share one log. */
export type WorldEvent =
  | { kind: "accept"; id: number; host: string; port: number }
  | { kind: "closed"; id: number; host: string; port: number; bytes: number }
  | { kind: "udp"; host: string; port: number; text: string; bytes: number }
  | { kind: "dns"; host: string; name: string; type: string; transport: "udp" | "tcp" }
  | { kind: "sni"; host: string; name: string }
  | {
      kind: "request";
      host: string;
      port: number;
      method: string;
      url: string;
      /** Header names and values, alternating. */
      headers: string[];
    };

export interface OpenConnection {
  id: number;
  host: string;
  port: number;
  /** Bytes received so far. */
  bytes: number;
}

export class WorldLog {
  #events: WorldEvent[] = [];

  add(event: WorldEvent): void {
    this.#events.push(event);
  }

  take(): WorldEvent[] {
    return this.#events.splice(0);
  }
}
