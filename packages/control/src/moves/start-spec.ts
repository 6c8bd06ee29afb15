import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { networkSpec } from "../egress/network-spec.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { SessionRow } from "../sessions/store.ts";

/** What the node is asked for as the first machine of a session. */
export function startSpec(session: SessionRow): StartSpec {
  return {
    template: session.baseline ?? session.template,
    size: session.size,
    hostname: session.id,
    no_sudo: session.no_sudo,
    network: networkSpec(session),
    ...(session.origin_snapshot_id !== null && { snapshot_id: session.origin_snapshot_id }),
  };
}

/** A machine in another state than the one it was started for does not answer: an error like the node's own. */
export function requireState(state: MachineStatus["state"], machine: MachineStatus): MachineStatus {
  if (machine.state === state) return machine;
  throw new NodeError("refused", `the machine is ${machine.state}`, { code: "agent_unavailable" });
}
