/** The network of one slot: its machine, and what is in force in its namespace. */
import type { Pin } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import { SerialQueue } from "@vivarium/kit/serial-queue";
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
  /** Absent while the slot is prepared and has no machine. */
  machine: SlotMachine | undefined;
  /** Flows judged under the current policy carry this mark. Every policy has another one. */
  mark: number;
  /** The mark that the kernel uses. Differs from `mark` until a change is in force. */
  kernelMark: number;
  /** As in the kernel. */
  policy: KernelPolicy;
  /** How many changes the kernel has taken. A change may alter the table without a packet. */
  changes = 0;
  readonly pins = new Pins();
  /** Loaded into the kernel together by the next run of the queue. */
  waitingPins: Pin[] = [];
  pinning: Promise<void> | undefined;
  /** Changes and pins of this slot, one at a time. */
  readonly queue = new SerialQueue();

  constructor(init: { slot: Slot; mark: number; policy: KernelPolicy }) {
    this.slot = init.slot;
    this.mark = init.mark;
    this.kernelMark = init.mark;
    this.policy = init.policy;
  }
}
