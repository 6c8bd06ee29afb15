import { ApiError } from "../http/api-error.ts";
import { invalidField } from "../http/validation.ts";
import type { NodeError } from "./node-error.ts";

/** What the caller of a guest operation is told when the node call failed before the operation started. */
export function apiErrorOfNode(error: NodeError): ApiError {
  const cause = { cause: error };
  switch (error.failure) {
    case "unreachable":
      return new ApiError(
        "session_node_unavailable",
        "the node of this session does not answer at the moment",
        cause,
      );
    case "garbled":
      return new ApiError(
        "bad_gateway",
        "the node of this session gave an answer that cannot be understood",
        cause,
      );
    case "broken":
    case "aborted":
      return new ApiError(
        "internal",
        "the node broke the connection; whether the operation started is unknown",
        cause,
      );
    case "refused":
      return refusedError(error);
  }
}

/**
 * What the caller of an operation on a session is told. An operation is written down and bears repetition, so a
 * connection that broke is no riddle: it goes on when the node answers.
 */
export function apiErrorOfOperation(error: NodeError): ApiError {
  if (error.failure !== "broken" && error.failure !== "aborted") return apiErrorOfNode(error);
  return new ApiError(
    "session_node_unavailable",
    "the node of this session broke off; the operation goes on, or is taken back, when it answers again",
    { cause: error },
  );
}

function refusedError(error: NodeError): ApiError {
  const cause = { cause: error };
  switch (error.code) {
    case "cwd_not_found":
      return invalidField("cwd", "no such file or directory");
    case "cwd_not_a_directory":
      return invalidField("cwd", "not a directory");
    case "invalid":
      return new ApiError("validation", refusalOfArgument(error.message), cause);
    case "disk_pressure":
      return new ApiError("node_disk_pressure", "the node has too little free disk for this", cause);
    case "no_capacity":
      return new ApiError("unavailable", "the node has no room for this at the moment", cause);
    case "template_unavailable":
      return new ApiError("template_version_unavailable", "the node cannot provide this template", cause);
    case "capture_failed":
      return new ApiError(
        "session_unavailable",
        "the session's state could not be saved; the session goes on as before",
        cause,
      );
    case "snapshot_damaged":
    case "snapshot_not_found":
      return new ApiError(
        "internal",
        "the saved state is damaged and cannot be loaded; it was left as it is, and trying again does not help",
        cause,
      );
    case "machine_held":
    case "machine_not_found":
    case "machine_gone":
    case "agent_unavailable":
      return new ApiError(
        "session_unavailable",
        "the session's machine does not answer at the moment",
        cause,
      );
    default:
      return new ApiError("internal", "the node failed unexpectedly", cause);
  }
}

const FIELD = /^(cwd|command|path): /;

/** Starts with the field it is about, as the answers to all invalid requests do. */
function refusalOfArgument(message: string): string {
  return FIELD.test(message) ? message : `command: the machine refuses it: ${message}`;
}
