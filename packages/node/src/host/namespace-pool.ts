/**
 * Slots whose network namespace is already made, so that a start does not wait for `ip` and `nft`. A slot that was
 * used is thrown away with its namespace: nothing of one tenant's network state reaches the next.
 */
import type { Log } from "@vivarium/kit/log";
import { createNamespace, type HostNetwork, removeNamespace } from "./netns.ts";
import { freeSlot, type Slot, takeSlot } from "./slots.ts";
import { killUid } from "./uid.ts";

const READY_SLOTS = 2;

export class NamespacePool {
  readonly #owner: string;
  readonly #limit: number;
  readonly #host: HostNetwork;
  readonly #log: Log;
  readonly #ready: Slot[] = [];
  #filling: Promise<void> | null = null;
  #closed = false;

  constructor(init: { owner: string; limit: number; host: HostNetwork; log: Log }) {
    this.#owner = init.owner;
    this.#limit = init.limit;
    this.#host = init.host;
    this.#log = init.log;
  }

  async take(): Promise<Slot> {
    const slot = this.#ready.shift() ?? (await this.#make());
    this.fill();
    return slot;
  }

  /** Refills in the background, one namespace at a time. */
  fill(): void {
    if (this.#filling || this.#closed) return;
    this.#filling = this.#fillUp()
      .catch((error) => this.#log.warn({ err: error }, "no namespace could be prepared ahead"))
      .finally(() => {
        this.#filling = null;
      });
  }

  async discard(slot: Slot): Promise<void> {
    await killUid(slot.uid);
    await removeNamespace(slot);
    await freeSlot(slot);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#filling;
    for (const slot of this.#ready.splice(0)) await this.discard(slot);
  }

  async #fillUp(): Promise<void> {
    while (this.#ready.length < READY_SLOTS && !this.#closed) this.#ready.push(await this.#make());
  }

  async #make(): Promise<Slot> {
    const slot = await takeSlot(this.#owner, this.#limit);
    try {
      await removeNamespace(slot);
      await createNamespace(slot, this.#host);
      return slot;
    } catch (error) {
      await this.discard(slot).catch(() => {});
      throw error;
    }
  }
}
