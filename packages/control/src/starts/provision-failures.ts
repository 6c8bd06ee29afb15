/** Reasons of failed provisioning: the text in the session's record, and the error code for a caller who waited. */
import type { ErrorCode } from "@vivarium/contract/api";
import type { NodeErrorCode } from "@vivarium/contract/node";
import type { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";

interface ProvisionFailure {
  /** Begins the text that is stored in the session's row. Unique, because the code is looked up by it. */
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
  snapshot_unfit: { reason: "the saved state does not continue on this host", code: "conflict" },
  guest_unfit: {
    reason:
      "the guest in the saved state that the session starts from does not come back; choose another one",
    code: "conflict",
  },
  volume_not_found: { reason: "the node has lost the volume of the session", code: "internal" },
  volume_held: { reason: "another machine has the volume of the session", code: "conflict" },
  volume_unfit: {
    reason: "what the session starts from was saved by an earlier version, and can have no volume",
    code: "conflict",
  },
  agent_unavailable: {
    reason: "the machine started, but its agent does not answer",
    code: "unavailable",
  },
};

/** The node's own text if it begins with the reason: it says more, such as the CPUs of two hosts. */
export function failureReason({ code, message }: Pick<NodeError, "code" | "message">): string {
  const reason = (code && FAILURES[code]?.reason) ?? "the node could not start the machine";
  return message.startsWith(`${reason}:`) ? oneLine(message) : reason;
}

/** Unknown reasons are retryable: nothing has run in a session that was never live. */
export function failureCode(reason: string | null | undefined): ErrorCode {
  return Object.values(FAILURES).find((failure) => reason?.startsWith(failure.reason))?.code ?? "unavailable";
}
