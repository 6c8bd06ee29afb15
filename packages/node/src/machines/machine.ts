/** One machine that runs: its process, its monitor, its agent. It learns of QEMU's end through the monitor. */
import type { MachineStatus, StartSpec, StartTimings } from "@vivarium/contract/node";
import { AgentClient } from "../guest/client.ts";
import { isAlive, type ProcessIdentity } from "../host/process.ts";
import type { Slot } from "../host/slots.ts";
import type { Qmp } from "../qemu/qmp.ts";

export class Machine {
  readonly id: string;
  readonly spec: StartSpec;
  readonly slot: Slot;
  readonly process: ProcessIdentity;
  readonly qmp: Qmp;
  readonly agent: AgentClient;
  readonly timings: StartTimings | undefined;
  /** Set once QEMU has ended by itself. */
  endReason: string | undefined;
  #shutdownReason: unknown;

  constructor(init: {
    id: string;
    spec: StartSpec;
    slot: Slot;
    process: ProcessIdentity;
    qmp: Qmp;
    agentSocket: string;
    timings?: StartTimings;
  }) {
    this.id = init.id;
    this.spec = init.spec;
    this.slot = init.slot;
    this.process = init.process;
    this.qmp = init.qmp;
    this.agent = new AgentClient(init.agentSocket);
    this.timings = init.timings;
    this.qmp.onEvent((event, data) => {
      if (event === "SHUTDOWN") this.#shutdownReason = data.reason;
    });
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

  status(): MachineStatus {
    return {
      machine_id: this.id,
      state: this.endReason === undefined ? "running" : "ended",
      reason: this.endReason,
      guest_ip: this.slot.machineAddress,
      timings: this.timings,
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
