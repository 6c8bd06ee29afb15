/** What holds in one slot's namespace, and for which machine. */
import type { Pin } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import type { Slot } from "../host/slots.ts";
import type { KernelPolicy } from "./kernel-policy.ts";
import { Pins } from "./pins.ts";

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
  /** What flows are marked with that were judged under the policy in force; another one for every other policy. */
  mark: number;
  /** Under which the kernel judges: another one as long as a change is not in force. */
  kernelMark: number;
  /** As the kernel has it. */
  policy: KernelPolicy;
  /** How many changes the kernel has taken. A change may alter the table without a packet. */
  changes = 0;
  readonly pins = new Pins();
  /** Those that go into the kernel together, at the next turn. */
  waitingPins: Pin[] = [];
  pinning: Promise<void> | undefined;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(init: { slot: Slot; mark: number; policy: KernelPolicy }) {
    this.slot = init.slot;
    this.mark = init.mark;
    this.kernelMark = init.mark;
    this.policy = init.policy;
  }

  /** Changes and pins take turns. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work, work);
    this.#turn = mine.catch(() => {});
    return mine;
  }
}
