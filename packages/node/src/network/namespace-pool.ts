/**
 * Prepares slots with a network namespace, so that a start does not wait for `ip` and `nft`. A used slot is discarded
 * with its namespace, so that no network state of one tenant reaches the next.
 */
import { endsWithin } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { forgetFlows } from "../host/conntrack.ts";
import { createNamespace, removeNamespace } from "../host/netns.ts";
import { freeSlot, type Slot, takeSlot } from "../host/slots.ts";
import { killUid } from "../host/uid.ts";
import type { NodeNetwork } from "./node-network.ts";

/** Number of prepared slots per egress mode. A namespace that is used as prepared needs no call of `nft`. */
const READY = { allow: 3, deny: 2 } as const;
type Mode = keyof typeof READY;
const MODES = Object.keys(READY) as Mode[];
const CLOSE_WAITS_MS = 2_000;
/** Delay before a taken slot is replaced, so that it does not compete with the start of the machine on it. */
const REFILL_AFTER_MS = 500;

interface NamespacePoolDeps {
  owner: string;
  /** The highest slot number. */
  limit: number;
  network: Pick<NodeNetwork, "networks" | "reporter">;
  log: Log;
}

export class NamespacePool {
  readonly #deps: NamespacePoolDeps;
  readonly #ready: Record<Mode, Slot[]> = { allow: [], deny: [] };
  /** Discarded slots that are not free yet, because the gateway may still attribute them to their last machines. */
  readonly #quarantine = new Set<Promise<void>>();
  #filling: Promise<void> | null = null;
  #refill: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(deps: NamespacePoolDeps) {
    this.#deps = deps;
  }

  /** A slot for a machine of this mode. It has no machine yet: call `networks.assign` next. */
  async take(mode: Mode): Promise<Slot> {
    const other = MODES.find((one) => one !== mode) as Mode;
    const slot = this.#ready[mode].shift() ?? this.#ready[other].shift() ?? (await this.#make(mode));
    this.#fillSoon();
    return slot;
  }

  /** Refills after a delay, or at once if no slot is left for one of the modes. */
  #fillSoon(): void {
    clearTimeout(this.#refill);
    if (MODES.some((mode) => this.#ready[mode].length === 0)) this.fill();
    else this.#refill = setTimeout(() => this.fill(), REFILL_AFTER_MS);
  }

  /** Refills in the background, one namespace at a time. */
  fill(): void {
    if (this.#filling || this.#closed) return;
    this.#filling = this.#fillUp()
      .catch((error) => this.#deps.log.warn({ err: error }, "no namespace could be prepared ahead"))
      .finally(() => {
        this.#filling = null;
      });
  }

  /**
   * Removes the namespace, and frees the slot later, once the gateway has forgotten its machine. `ofMachine`: the
   * machine of the slot, if it ended while the daemon was down.
   */
  async discard(slot: Slot, ofMachine?: string): Promise<void> {
    const { networks, reporter } = this.#deps.network;
    await killUid(slot.uid);
    await reporter.readLast(slot, ofMachine);
    const isForgotten = networks.release(slot);
    await removeNamespace(slot);
    await forgetFlows(slot).catch((err: unknown) =>
      this.#deps.log.warn(
        { err, slot: slot.number },
        "flows of a machine that is gone stay in the host's table",
      ),
    );
    const freed = isForgotten
      .then(() => freeSlot(slot))
      .catch((err: unknown) => this.#deps.log.error({ err, slot: slot.number }, "a slot could not be freed"))
      .finally(() => this.#quarantine.delete(freed));
    this.#quarantine.add(freed);
  }

  /** Discards all slots. One that the gateway does not release in time stays taken until the daemon's next start. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#refill);
    await this.#filling;
    const ready = MODES.flatMap((mode) => this.#ready[mode].splice(0));
    await Promise.all(ready.map((slot) => this.discard(slot)));
    await endsWithin(CLOSE_WAITS_MS, Promise.all(this.#quarantine));
  }

  async #fillUp(): Promise<void> {
    for (;;) {
      const lacking = MODES.find((mode) => this.#ready[mode].length < READY[mode]);
      if (!lacking || this.#closed) return;
      this.#ready[lacking].push(await this.#make(lacking));
    }
  }

  async #make(mode: Mode): Promise<Slot> {
    const { networks } = this.#deps.network;
    const slot = await takeSlot(this.#deps.owner, this.#deps.limit);
    try {
      await removeNamespace(slot);
      await createNamespace(slot, networks.preparedRuleset(slot, mode));
      networks.addPrepared(slot, mode);
      return slot;
    } catch (error) {
      await this.discard(slot).catch(() => {});
      throw error;
    }
  }
}
