/** Writes each flow that went out by NAT into the egress log, at its end. */
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { countBytesOfFlows, watchFlows } from "../host/conntrack.ts";
import type { EgressLog } from "./egress-log.ts";
import { type FlowEvent, flowEntry, parseFlowEvent } from "./flow-events.ts";
import type { Networks } from "./networks.ts";

const RESTART_MS = 5_000;
/** Open flows that are remembered, with the time and machine of their beginning. */
const MOST_OPEN = 200_000;
/** Log lines per machine and second, so that one machine cannot crowd out the lines of others. */
const LINES_PER_SECOND = 200;

type Began = Parameters<typeof flowEntry>[1];

export interface FlowLogDeps {
  networks: Networks;
  log: EgressLog;
  say: Log;
}

/** Runs until the signal aborts. Without the tool `conntrack` the egress log lacks these lines, and no more. */
export async function keepFlowLog(deps: FlowLogDeps, until: AbortSignal): Promise<void> {
  const open = new Map<string, Began>();
  const lineDeps = { ...deps, open, budget: new LineBudget() };
  // conntrack does not report how many events were lost, so they count as one.
  const onLost = () => deps.log.add([], 1);
  let isKnown = false;
  while (!until.aborted) {
    try {
      await countBytesOfFlows();
      await watchFlows({ onLine: (line) => onLine(lineDeps, line), onLost }, until);
    } catch (err) {
      if (!isKnown) deps.say.warn({ err }, "flows are missing in the egress log; is conntrack installed?");
      isKnown = true;
      open.clear();
      await sleep(RESTART_MS, until);
    }
  }
}

/** Rate limit of log lines per machine. */
export class LineBudget {
  #second = 0;
  readonly #lines = new Map<string, number>();

  /** Takes one line of this second's budget, if any is left. */
  takes(machineId: string, now = performance.now()): boolean {
    const second = Math.floor(now / 1000);
    if (second !== this.#second) this.#lines.clear();
    this.#second = second;
    const lines = (this.#lines.get(machineId) ?? 0) + 1;
    this.#lines.set(machineId, lines);
    return lines <= LINES_PER_SECOND;
  }
}

export function onLine(
  deps: Omit<FlowLogDeps, "say"> & { open: Map<string, Began>; budget: LineBudget },
  line: string,
): void {
  const { open, budget, log } = deps;
  const flow = parseFlowEvent(line);
  if (!flow) return;
  if (flow.event === "new") {
    const began = beginningOf(deps, flow);
    if (began) open.set(flow.id, began);
    // A flow whose end was lost would stay in the map for ever.
    const oldest = open.keys().next().value;
    if (open.size > MOST_OPEN && oldest !== undefined) open.delete(oldest);
    return;
  }
  // If the flow began before this daemon, its machine is the one that has the slot now: a slot's flows are deleted
  // with its machine.
  const began = open.get(flow.id) ?? beginningOf(deps, flow);
  open.delete(flow.id);
  if (!began) return;
  if (budget.takes(began.machineId)) log.add([flowEntry(flow, began)]);
  else log.add([], 1);
}

/** Facts of a flow's beginning. Undefined for a flow of no machine, and for one to the gateway, which logs its own. */
function beginningOf({ networks }: Pick<FlowLogDeps, "networks">, flow: FlowEvent): Began | undefined {
  const network = networks.all().find(({ slot }) => slot.machineAddress === flow.source);
  if (!network?.machine || flow.address === network.slot.hostAddress) return undefined;
  const { machineId, spec } = network.machine;
  const host = flow.port === undefined ? undefined : network.pins.nameOf(flow.address, flow.port);
  return { machineId, at: new Date().toISOString(), host, mode: spec.egress.mode };
}
