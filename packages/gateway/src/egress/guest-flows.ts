/** All open connections of guests: a change of tables judges them again. */
import type { Socket } from "node:net";
import { type FlowDeps, GuestFlow } from "./guest-flow.ts";

/** The port that a guest dialled, by the front that its connection was redirected to. */
const PORT_OF = { http: 80, tls: 443 } as const;
/** Connections one machine may have open through the gateway. */
const MAX_FLOWS = 512;
/** Requests sent ahead of their answers, on all connections of a machine together. */
const MAX_SENT_AHEAD = 512;

export class GuestFlows {
  readonly #deps: FlowDeps;
  readonly #byMachine = new Map<string, Set<GuestFlow>>();

  constructor(deps: FlowDeps) {
    this.#deps = deps;
    deps.tables.subscribe(() => this.#judgeAgain());
  }

  /** Undefined, with the connection closed: no machine has the address, or it has too many connections. */
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

  /** Whether the machine may have one more request in memory that waits for an earlier one's answer. */
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
