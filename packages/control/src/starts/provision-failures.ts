/** Reasons of failed provisioning: the text in the session's record, and the error code for a caller who waited. */
import type { ErrorCode } from "@vivarium/contract/api";
import type { NodeErrorCode } from "@vivarium/contract/node";

interface ProvisionFailure {
  /** Stored in the session's row. Unique, because the code is looked up by it. */
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

/** Unknown reasons are retryable: nothing has run in a session that was never live. */
export function failureCode(reason: string | null | undefined): ErrorCode {
  return Object.values(FAILURES).find((failure) => failure.reason === reason)?.code ?? "unavailable";
}
