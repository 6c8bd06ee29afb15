/** Opens the listeners of each slot in the tables, with or without a machine, and closes them with the slot. */
import { once } from "node:events";
import type { Server } from "node:net";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { CurrentTables } from "./current-tables.ts";

const RETRY_MS = 250;

export interface Listener {
  close(): void;
}

/** Listens with a TCP server. Rejects while the address or the port is not available. */
export async function listenAt(
  server: Server,
  host: string,
  port: number,
  { log, name }: { log: Log; name: string },
): Promise<Listener> {
  server.listen({ host, port, exclusive: true });
  await once(server, "listening");
  server.on("error", (error) => log.warn({ err: error, address: host }, name));
  return { close: () => void server.close() };
}

/** Opens one listener of a slot. Rejects while its address or port is not available. */
export type OpenListener = (hostAddress: string) => Promise<Listener>;

export interface SlotsDeps {
  tables: CurrentTables;
  openers: readonly OpenListener[];
  log: Log;
}

export class Slots {
  readonly #deps: SlotsDeps;
  readonly #slots = new Map<string, Slot>();

  constructor(deps: SlotsDeps) {
    this.#deps = deps;
    deps.tables.subscribe(() => this.#follow());
  }

  /** Resolves after the first attempt for each slot of the current tables. Failures are retried in the background. */
  async settled(): Promise<void> {
    await Promise.all([...this.#slots.values()].map((slot) => slot.tried));
  }

  close(): void {
    for (const slot of this.#slots.values()) slot.close();
    this.#slots.clear();
  }

  #follow(): void {
    const wanted = new Set(this.#deps.tables.current()?.slots.map((slot) => slot.host_address));
    for (const [address, slot] of this.#slots) {
      if (wanted.has(address)) continue;
      slot.close();
      this.#slots.delete(address);
    }
    for (const address of wanted) {
      if (!this.#slots.has(address)) this.#slots.set(address, new Slot(this.#deps, address));
    }
  }
}

class Slot {
  readonly tried: Promise<unknown>;
  readonly #deps: SlotsDeps;
  readonly #address: string;
  readonly #closing = new AbortController();
  readonly #listeners = new Set<Listener>();

  constructor(deps: SlotsDeps, address: string) {
    this.#deps = deps;
    this.#address = address;
    this.tried = Promise.all(deps.openers.map((open) => this.#keepTrying(open)));
  }

  close(): void {
    this.#closing.abort();
    for (const listener of this.#listeners) listener.close();
    this.#listeners.clear();
  }

  /** Resolves after the first attempt, and retries in the background. */
  async #keepTrying(open: OpenListener): Promise<void> {
    if (await this.#isOpened(open, true)) return;
    void (async () => {
      do await sleep(RETRY_MS, this.#closing.signal);
      while (!(await this.#isOpened(open, false)));
    })();
  }

  async #isOpened(open: OpenListener, isFirst: boolean): Promise<boolean> {
    if (this.#closing.signal.aborted) return true;
    try {
      const listener = await open(this.#address);
      if (this.#closing.signal.aborted) listener.close();
      else this.#listeners.add(listener);
      return true;
    } catch (error) {
      // The slot's address is created with its network device, which may come after the tables.
      if (isFirst)
        this.#deps.log.debug({ err: error, address: this.#address }, "a slot is not listened for yet");
      return false;
    }
  }
}
