import type { Socket } from "node:net";
import type { EgressLog } from "../flows/egress-log.ts";
import type { CurrentTables } from "../tables/current-tables.ts";
import { Flow } from "./flow.ts";
import { PORT_OF } from "./web-ports.ts";

/** Connections one machine may have open through the gateway. */
const MAX_FLOWS = 512;
/** Requests sent ahead of their answers, on all connections of a machine together. */
const MAX_SENT_AHEAD = 512;

/** All open connections of guests: a change of tables judges them again. */
export class OpenFlows {
  readonly #deps: { tables: CurrentTables; egressLog: EgressLog };
  readonly #byMachine = new Map<string, Set<Flow>>();

  constructor(deps: { tables: CurrentTables; egressLog: EgressLog }) {
    this.#deps = deps;
    deps.tables.subscribe(() => this.#judgeAgain());
  }

  /** Undefined, with the connection closed: no machine has the address, or it has too many connections. */
  accept(guest: Socket, hostAddress: string, kind: "http" | "tls"): Flow | undefined {
    const slot = this.#deps.tables.slotAt(hostAddress);
    if (!slot) {
      guest.resetAndDestroy();
      return undefined;
    }
    const flow = new Flow(this.#deps, { guest, slot, kind, port: PORT_OF[kind] });
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
  maySendAhead(flow: Flow): boolean {
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

  #all(): Flow[] {
    return [...this.#byMachine.values()].flatMap((flows) => [...flows]);
  }

  #remove(machineId: string, flow: Flow): void {
    const flows = this.#byMachine.get(machineId);
    flows?.delete(flow);
    if (flows?.size === 0) this.#byMachine.delete(machineId);
  }
}
