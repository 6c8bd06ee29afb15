/** The network of one slot, with its machine and the policy that is in force in its namespace. */
import type { Pin } from "@vivarium/contract/gateway";
import type { NetworkSpec } from "@vivarium/contract/node";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import type { Slot } from "../host/slots.ts";
import type { KernelPolicy } from "./kernel-policy.ts";
import { Pins } from "./pins.ts";

export interface SlotMachine {
  machineId: string;
  spec: NetworkSpec;
  /** First version of the gateway's tables with this spec. */
  version: number;
  /** Whether the kernel has this spec. */
  isApplied: boolean;
}

export class SlotNetwork {
  readonly slot: Slot;
  /** Absent while the slot is prepared and has no machine. */
  machine: SlotMachine | undefined;
  /** Conntrack mark of the flows that the current egress policy allowed. Each change of it uses the next number. */
  mark: number;
  /** The mark that the kernel uses. Differs from `mark` until a change is in force. */
  kernelMark: number;
  /** The policy that the kernel has. */
  policy: KernelPolicy;
  /** Number of changes loaded into the kernel, which alter the table without a packet. */
  changes = 0;
  readonly pins = new Pins();
  /** Pins that the next run of the queue loads into the kernel together. */
  waitingPins: Pin[] = [];
  /** That run of the queue, while it waits to begin. */
  pinning: Promise<void> | undefined;
  /** Runs changes and pins of this slot one at a time. */
  readonly queue = new SerialQueue();

  constructor(init: { slot: Slot; mark: number; policy: KernelPolicy }) {
    this.slot = init.slot;
    this.mark = init.mark;
    this.kernelMark = init.mark;
    this.policy = init.policy;
  }
}
