/** Writes the flows that went out by NAT into the egress log, each once, at its end. */
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import { countBytesOfFlows, watchFlows } from "../host/conntrack.ts";
import type { EgressLog } from "./egress-log.ts";
import { type FlowEvent, flowEntry, parseFlowEvent } from "./flow-events.ts";
import type { Networks } from "./networks.ts";

const RESTART_MS = 5_000;
const MOST_OPEN = 200_000;

type Began = Parameters<typeof flowEntry>[1];

export interface FlowLogDeps {
  networks: Networks;
  log: EgressLog;
  say: Log;
}

/** Until the signal aborts. Without the tool the log lacks these lines, and nothing else. */
export async function keepFlowLog(deps: FlowLogDeps, until: AbortSignal): Promise<void> {
  const open = new Map<string, Began>();
  let isKnown = false;
  while (!until.aborted) {
    try {
      await countBytesOfFlows();
      await watchFlows((line) => onLine(deps, open, line), until);
    } catch (err) {
      if (!isKnown) deps.say.warn({ err }, "flows are missing in the egress log; is conntrack installed?");
      isKnown = true;
      open.clear();
      await sleep(RESTART_MS, until);
    }
  }
}

function onLine(deps: FlowLogDeps, open: Map<string, Began>, line: string): void {
  const flow = parseFlowEvent(line);
  if (!flow) return;
  if (flow.event === "new") {
    const began = beginningOf(deps, flow);
    if (began && open.size < MOST_OPEN) open.set(flow.id, began);
    return;
  }
  // Begun before this daemon: whose it is now is whose it was, since a slot's flows are forgotten with its machine.
  const began = open.get(flow.id) ?? beginningOf(deps, flow);
  open.delete(flow.id);
  if (began) deps.log.add([flowEntry(flow, began)]);
}

/** Undefined for what is no machine's, and for what went to the gateway, which tells of it itself. */
function beginningOf({ networks }: FlowLogDeps, flow: FlowEvent): Began | undefined {
  const network = networks.all().find(({ slot }) => slot.machineAddress === flow.source);
  if (!network?.machine || flow.address === network.slot.hostAddress) return undefined;
  const { machineId, spec } = network.machine;
  const host = flow.port === undefined ? undefined : network.nameOf(flow.address, flow.port);
  return { machineId, at: new Date().toISOString(), host, mode: spec.egress.mode };
}
