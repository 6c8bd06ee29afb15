/** Why a session could not be provisioned: what its record says, and what is told to who waited for the session. */
import type { ErrorCode } from "@vivarium/contract/api";
import type { NodeErrorCode } from "@vivarium/contract/node";

interface ProvisionFailure {
  /** In the session's row; no two failures have the same. */
  reason: string;
  code: ErrorCode;
}

const FAILURES: Partial<Record<NodeErrorCode, ProvisionFailure>> = {
  disk_pressure: {
    reason: "the node has too little free disk for another machine",
    code: "node_disk_pressure",
  },
  template_unavailable: {
    reason: "the node has no baseline for this template and size",
    code: "template_version_unavailable",
  },
  snapshot_not_found: {
    reason: "the saved state that the session starts from is gone",
    code: "internal",
  },
  snapshot_damaged: {
    reason: "the saved state that the session starts from is damaged",
    code: "internal",
  },
  guest_unfit: {
    reason:
      "the guest in the saved state that the session starts from does not come back; choose another one",
    code: "conflict",
  },
  agent_unavailable: {
    reason: "the machine started, but its agent does not answer",
    code: "unavailable",
  },
};

export function failureReason(code: NodeErrorCode | undefined): string {
  return (code && FAILURES[code]?.reason) ?? "the node could not start the machine";
}

/** Nothing has run in a session that was never live, so that most failures may simply be tried again. */
export function failureCode(reason: string | null | undefined): ErrorCode {
  return Object.values(FAILURES).find((failure) => failure.reason === reason)?.code ?? "unavailable";
}
