/**
 * Prepares slots with a network namespace, so that a start does not wait for `ip` and `nft`. A used slot is discarded
 * with its namespace, so that no network state of one tenant reaches the next.
 */
import { endsWithin } from "@vivarium/kit/clock";
import { everyStep } from "@vivarium/kit/every-step";
import type { Log } from "@vivarium/kit/log";
import type { Cgroups } from "../host/cgroup.ts";
import { forgetFlows } from "../host/conntrack.ts";
import { endProcesses } from "../host/end-processes.ts";
import { createNamespace, removeNamespace } from "../host/netns.ts";
import { freeSlot, type Slot, takeSlot } from "../host/slots.ts";
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
  cgroups: Cgroups;
  network: Pick<NodeNetwork, "networks" | "reporter">;
  log: Log;
}

export class NamespacePool {
  readonly #deps: NamespacePoolDeps;
  readonly #ready: Record<Mode, Slot[]> = { allow: [], deny: [] };
  /** Discarded slots that are not free yet, because the gateway may still attribute them to their last machines. */
  readonly #quarantine = new Set<Promise<void>>();
  /** By slot number: resolves once the gateway has forgotten the last machine of an emptied slot. */
  readonly #forgotten = new Map<number, Promise<void>>();
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

  /** Empties the slot and frees it. One that cannot be emptied stays taken. */
  async discard(slot: Slot): Promise<void> {
    await this.empty(slot);
    this.free(slot);
  }

  /**
   * Removes all that the slot has but its number: processes, cgroup, namespace. Each is removed although another cannot
   * be. After an error the slot must stay taken, because what is left would be the next machine's; safe to repeat.
   * `ofMachine`: the machine of the slot, if it ended while the daemon was down.
   */
  async empty(slot: Slot, ofMachine?: string): Promise<void> {
    const { cgroups, network } = this.#deps;
    await everyStep([
      { name: "end of its processes", run: () => endProcesses(cgroups, slot) },
      { name: "last reading of its counters", run: () => network.reporter.readLast(slot, ofMachine) },
      { name: "removal of its namespace", run: () => this.#removeNetwork(slot) },
      { name: "removal of its flows", run: () => this.#forgetFlows(slot) },
    ]);
  }

  async #removeNetwork(slot: Slot): Promise<void> {
    const forgotten = this.#deps.network.networks.release(slot);
    forgotten.catch(() => {});
    this.#forgotten.set(slot.number, forgotten);
    await removeNamespace(slot);
  }

  async #forgetFlows(slot: Slot): Promise<void> {
    await forgetFlows(slot).catch((err: unknown) =>
      this.#deps.log.warn(
        { err, slot: slot.number },
        "flows of a machine that is gone stay in the host's table",
      ),
    );
  }

  /** Frees an emptied slot, once the gateway has forgotten its machine. */
  free(slot: Slot): void {
    const forgotten = this.#forgotten.get(slot.number);
    this.#forgotten.delete(slot.number);
    const freed = Promise.resolve(forgotten)
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
    const discarded = ready.map((slot) =>
      this.discard(slot).catch((err: unknown) =>
        this.#deps.log.error({ err, slot: slot.number }, "a slot could not be emptied; it stays taken"),
      ),
    );
    await Promise.all(discarded);
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
      await this.#deps.cgroups.remove(slot);
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
