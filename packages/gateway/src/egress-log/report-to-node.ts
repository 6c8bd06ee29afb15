/** Sends the egress log to the node every second. */
import type { Flows } from "@vivarium/contract/gateway";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import type { NodeClient } from "../tables/node-client.ts";
import type { EgressLog } from "./lines.ts";

const EVERY_MS = 1_000;

export interface ReportDeps {
  node: NodeClient;
  egressLog: EgressLog;
  log: Log;
}

/** Reports until the signal aborts, then once more, so that the last lines are not lost. */
export async function reportFlows(deps: ReportDeps, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await sleep(EVERY_MS, signal);
    await reportOnce(deps);
  }
}

async function reportOnce(deps: ReportDeps): Promise<void> {
  const { egressLog } = deps;
  for (let flows = egressLog.take(); flows !== undefined; flows = egressLog.take()) {
    if (await isReported(deps, flows)) continue;
    egressLog.giveBack(flows);
    return;
  }
}

async function isReported({ node, log }: ReportDeps, flows: Flows): Promise<boolean> {
  try {
    const { status } = await node.post("/v1/flows", flows);
    if (status === 204) return true;
    // A report with a 4xx is dropped, since the node would refuse it for ever. One with a 5xx is sent again.
    log.error({ status, lines: flows.entries.length }, "the node refused lines of the egress log");
    return status < 500;
  } catch (error) {
    log.debug({ err: error }, "lines of the egress log wait for the node");
    return false;
  }
}
