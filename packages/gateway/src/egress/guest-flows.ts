/** Keeps all open connections of guests, limits them per machine, and checks them again when the tables change. */
import type { Socket } from "node:net";
import { type FlowDeps, GuestFlow } from "./guest-flow.ts";

/** The port that a guest dialled, by the listener that its connection was redirected to. */
const PORT_OF = { http: 80, tls: 443 } as const;
/** Connections that one machine may have open. */
const MAX_FLOWS = 512;
/** Pipelined requests that wait for an earlier request's answer, on all connections of a machine together. */
const MAX_SENT_AHEAD = 512;

export class GuestFlows {
  readonly #deps: FlowDeps;
  readonly #byMachine = new Map<string, Set<GuestFlow>>();

  constructor(deps: FlowDeps) {
    this.#deps = deps;
    deps.tables.subscribe(() => this.#judgeAgain());
  }

  /** Closes the connection and returns undefined when the address has no machine, or its machine has too many. */
  accept(guest: Socket, hostAddress: string, kind: "http" | "tls"): GuestFlow | undefined {
    const slot = this.#deps.tables.slotAt(hostAddress);
    if (!slot) {
      guest.resetAndDestroy();
      return undefined;
    }
    const flow = new GuestFlow(this.#deps, { guest, slot, kind, port: PORT_OF[kind] });
    const flows = this.#byMachine.get(slot.machineId) ?? new Set();
    if (flows.size >= MAX_FLOWS) {
      flow.cut("too_many");
      return undefined;
    }
    this.#byMachine.set(slot.machineId, flows.add(flow));
    guest.once("close", () => this.#remove(slot.machineId, flow));
    return flow;
  }

  /** Whether the machine may have one more pipelined request. A flow's only request always may. */
  maySendAhead(flow: GuestFlow): boolean {
    if (flow.unanswered === 0) return true;
    let sentAhead = 0;
    for (const { unanswered } of this.#byMachine.get(flow.machineId) ?? []) {
      sentAhead += Math.max(0, unanswered - 1);
    }
    return sentAhead < MAX_SENT_AHEAD;
  }

  close(): void {
    for (const flow of this.#all()) flow.guest.destroy();
  }

  #judgeAgain(): void {
    for (const flow of this.#all()) flow.judgeAgain();
  }

  #all(): GuestFlow[] {
    return [...this.#byMachine.values()].flatMap((flows) => [...flows]);
  }

  #remove(machineId: string, flow: GuestFlow): void {
    const flows = this.#byMachine.get(machineId);
    flows?.delete(flow);
    if (flows?.size === 0) this.#byMachine.delete(machineId);
  }
}
