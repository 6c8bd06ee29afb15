/** What holds in one slot's namespace, and for which machine. */
import type { NetworkSpec } from "@vivarium/contract/node";
import type { Slot } from "../host/slots.ts";
import type { KernelPolicy } from "./kernel-policy.ts";

interface Pinned {
  address: string;
  port: number;
  host: string | undefined;
  /** Milliseconds of `performance.now()`. */
  until: number;
}

export interface SlotMachine {
  machineId: string;
  spec: NetworkSpec;
  /** Version of the gateway's tables that first had this spec. */
  version: number;
  /** Whether the kernel has it. */
  isApplied: boolean;
}

export class SlotNetwork {
  readonly slot: Slot;
  /** Absent while the slot is prepared for nobody. */
  machine: SlotMachine | undefined;
  /** What flows are marked with that were judged under the policy in force; another one for every change. */
  mark: number;
  /** As the kernel has it. */
  policy: KernelPolicy;
  readonly pins = new Map<string, Pinned>();
  #turn: Promise<unknown> = Promise.resolve();

  constructor(init: { slot: Slot; mark: number; policy: KernelPolicy }) {
    this.slot = init.slot;
    this.mark = init.mark;
    this.policy = init.policy;
  }

  /** Changes and pins take turns. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work, work);
    this.#turn = mine.catch(() => {});
    return mine;
  }

  remember(pins: Pinned[]): void {
    const now = performance.now();
    for (const [key, pin] of this.pins) if (pin.until < now) this.pins.delete(key);
    for (const pin of pins) this.pins.set(`${pin.address}:${pin.port}`, pin);
  }

  nameOf(address: string, port: number): string | undefined {
    return this.pins.get(`${address}:${port}`)?.host;
  }
}
