/** A running or held machine with its QEMU process, its monitor, which reports QEMU's end, and its agent. */
import type { MachineStatus } from "@vivarium/contract/node";
import { isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import type { AgentClient } from "../guest/client.ts";
import { type Slot, slotOf } from "../host/slots.ts";
import type { Qmp } from "../qemu/qmp.ts";
import type { JournalEntry } from "./journal.ts";

export class Machine {
  readonly id: string;
  readonly slot: Slot;
  readonly process: ProcessIdentity;
  readonly qmp: Qmp;
  readonly agent: AgentClient;
  /** Set once QEMU has ended by itself. */
  endReason: string | undefined;
  /** Set while the guest is stopped because the pool was full when it wrote. */
  isOutOfSpace = false;
  /** Set while the thaw of the guest's processes is repeated, because the agent did not answer. */
  isThawing = false;
  /** Why the guest cannot mount the volume that the machine has. */
  volumeFailure: string | undefined;
  /** Runs captures, continues and thaws of this machine one at a time. */
  readonly queue = new SerialQueue();
  #entry: JournalEntry;
  #shutdownReason: unknown;

  constructor(init: { entry: JournalEntry; process: ProcessIdentity; qmp: Qmp; agent: AgentClient }) {
    this.id = init.entry.machine_id;
    this.slot = slotOf(init.entry.slot);
    this.#entry = init.entry;
    this.process = init.process;
    this.qmp = init.qmp;
    this.agent = init.agent;
    this.qmp.onEvent((event, data) => {
      if (event === "SHUTDOWN") this.#shutdownReason = data.reason;
      if (event === "BLOCK_IO_ERROR" && data.nospace === true) this.isOutOfSpace = true;
    });
  }

  /** The journal entry as last written, or as intended if it could not be written. */
  get entry(): JournalEntry {
    return this.#entry;
  }

  /** A machine that becomes held breaks off all requests to its guest. */
  set entry(entry: JournalEntry) {
    this.#entry = entry;
    if (this.isHeld) this.agent.breakOff();
  }

  get spec() {
    return this.entry.spec;
  }

  /** Id of the state key that the machine is sealed with. */
  get stateKeyId(): string | undefined {
    return this.entry.state_key_id;
  }

  /** Whether the guest is stopped: loaded or captured, and not continued since. */
  get isHeld(): boolean {
    return this.entry.state === "held";
  }

  /** Calls back once if QEMU ends without having been asked to. A QEMU that was killed reports no reason itself. */
  onEnd({
    killReason,
    listener,
  }: {
    killReason: () => string | undefined;
    listener: (reason: string) => void;
  }): void {
    void this.qmp.closed.then(() => {
      this.endReason ??=
        END_REASONS.get(this.#shutdownReason) ?? killReason() ?? "its process ended unexpectedly";
      this.agent.close();
      listener(this.endReason);
    });
  }

  get isRunning(): boolean {
    return this.endReason === undefined && isAlive(this.process);
  }

  /** Whether QEMU reported that the guest powered off, restarted or crashed. */
  get wasEndedByGuest(): boolean {
    return String(this.#shutdownReason).startsWith("guest-");
  }

  status(): MachineStatus {
    return {
      machine_id: this.id,
      state: this.endReason !== undefined ? "ended" : this.isHeld ? "held" : "running",
      reason: this.endReason,
      guest_ip: this.slot.machineAddress,
      isolation: this.entry.isolation,
      timings: this.entry.timings,
      volume_failure: this.volumeFailure,
      network_generation: this.entry.spec.network?.generation,
    };
  }
}

const CRASHED = "its kernel crashed or was restarted from inside";
/** Reason of an end by the reason that QEMU reported; a killed QEMU reports none. */
const END_REASONS = new Map<unknown, string>([
  ["guest-shutdown", "it was powered off from inside"],
  ["guest-reset", CRASHED],
  ["guest-panic", CRASHED],
]);
