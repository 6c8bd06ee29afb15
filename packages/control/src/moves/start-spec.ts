import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { guestAuthorityOf } from "../connections/authority.ts";
import { networkSpec } from "../egress/prepare.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { SessionRow } from "../sessions/store.ts";

/** The spec for a session's first machine. Wake and restore start the next machine with another snapshot. */
export function startSpec(session: SessionRow): StartSpec {
  return {
    template: session.baseline ?? session.template,
    size: session.size,
    hostname: session.id,
    no_sudo: session.no_sudo,
    network: networkSpec(session),
    ...(session.origin_snapshot_id !== null && { snapshot_id: session.origin_snapshot_id }),
    ...guestAuthorityOf(session),
    ...volumeOf(session),
  };
}

/** The size is that of the create: a volume grows only while no session has it. */
function volumeOf({ volume_id, volume_gb }: SessionRow): Pick<StartSpec, "volume"> {
  if (volume_id === null || volume_gb === null) return {};
  return { volume: { volume_id, size_gb: volume_gb } };
}

/** Throws the node's error for an agent that does not answer, if the machine is in another state. */
export function requireState(state: MachineStatus["state"], machine: MachineStatus): MachineStatus {
  if (machine.state === state) return machine;
  throw new NodeError("refused", `the machine is ${machine.state}`, { code: "agent_unavailable" });
}
