/** One machine: its process, its monitor, its agent. It learns of QEMU's end through the monitor. */
import type { MachineStatus } from "@vivarium/contract/node";
import type { AgentClient } from "../guest/client.ts";
import { isAlive, type ProcessIdentity } from "../host/process.ts";
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
  /** Set while the guest stands still because the pool was full when it wrote. */
  isOutOfSpace = false;
  /** Set while an agent that did not thaw its guest is asked again and again. */
  isThawing = false;
  #entry: JournalEntry;
  #shutdownReason: unknown;
  #turn: Promise<unknown> = Promise.resolve();

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

  /** As last written to the journal. */
  get entry(): JournalEntry {
    return this.#entry;
  }

  /** Once a machine is held, whatever was under way with its guest breaks off. */
  set entry(entry: JournalEntry) {
    this.#entry = entry;
    if (this.isHeld) this.agent.breakOff();
  }

  get spec() {
    return this.entry.spec;
  }

  /** Loaded or captured, and standing still. */
  get isHeld(): boolean {
    return this.entry.state === "held";
  }

  /** Captures and continues take turns. */
  exclusive<T>(work: () => Promise<T>): Promise<T> {
    const mine = this.#turn.then(work, work);
    this.#turn = mine.catch(() => {});
    return mine;
  }

  /** Calls back once when QEMU ends without having been asked to. */
  onEnd(listener: (reason: string) => void): void {
    void this.qmp.closed.then(() => {
      this.endReason ??= describeEnd(this.#shutdownReason);
      this.agent.close();
      listener(this.endReason);
    });
  }

  get isRunning(): boolean {
    return this.endReason === undefined && isAlive(this.process);
  }

  /** Powered off, restarted or crashed from inside, as far as QEMU has said. */
  get wasEndedByGuest(): boolean {
    return String(this.#shutdownReason).startsWith("guest-");
  }

  status(): MachineStatus {
    return {
      machine_id: this.id,
      state: this.endReason !== undefined ? "ended" : this.isHeld ? "held" : "running",
      reason: this.endReason,
      guest_ip: this.slot.machineAddress,
      timings: this.entry.timings,
      network_generation: this.entry.spec.network?.generation,
    };
  }
}

/** QEMU's own word for why it ends; none when it was killed. */
function describeEnd(shutdownReason: unknown): string {
  switch (shutdownReason) {
    case "guest-shutdown":
      return "it was powered off from inside";
    case "guest-reset":
    case "guest-panic":
      return "its kernel crashed or was restarted from inside";
    default:
      return "its process ended unexpectedly";
  }
}
