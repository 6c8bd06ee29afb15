import type { ErrorCode } from "@vivarium/contract/api";
import { GUEST_ERRORS, type GuestErrorCode, isGuestErrorCode } from "@vivarium/contract/guest";
import type { NodeErrorCode } from "@vivarium/contract/node";
import { ApiError } from "../errors/api-error.ts";
import { oneLine } from "../http/render-error.ts";
import { invalidField } from "../http/validation.ts";
import type { NodeError, NodeFailure } from "./node-error.ts";

type ApiText = [ErrorCode, string];

/** The caller's error when the node call of a guest operation failed before the operation started. */
export function apiErrorOfNode(error: NodeError): ApiError {
  if (error.failure === "refused") return refusedError(error);
  return new ApiError(...FAILURES[error.failure], { cause: error });
}

const BROKEN: ApiText = [
  "internal",
  "the node broke the connection; whether the operation started is unknown",
];
const FAILURES: Record<Exclude<NodeFailure, "refused">, ApiText> = {
  unreachable: ["session_node_unavailable", "the node of this session does not answer at the moment"],
  garbled: ["bad_gateway", "the node of this session gave an answer that cannot be understood"],
  broken: BROKEN,
  aborted: BROKEN,
};

/**
 * The caller's error for an operation on a session. The operation is in the row and can be repeated. So after a broken
 * connection it continues when the node answers again.
 */
export function apiErrorOfOperation(error: NodeError): ApiError {
  if (error.failure !== "broken" && error.failure !== "aborted") return apiErrorOfNode(error);
  return new ApiError(
    "session_node_unavailable",
    "the node of this session broke off; the operation goes on, or is taken back, when it answers again",
    { cause: error },
  );
}

/**
 * The caller's error when a session that is made for one request could not be made or prepared. The session is
 * destroyed and the work never started, so a broken connection leaves nothing uncertain.
 */
export function apiErrorOfPreparation(error: NodeError): ApiError {
  if (error.failure !== "broken" && error.failure !== "aborted") return apiErrorOfNode(error);
  return new ApiError("bad_gateway", "the node broke the connection before anything began; try again", {
    cause: error,
  });
}

function refusedError(error: NodeError): ApiError {
  const { code } = error;
  if (code === undefined) return new ApiError(...UNEXPECTED, { cause: error });
  if (isGuestErrorCode(code)) return refusedByGuest(code, error);
  switch (code) {
    case "cwd_not_found":
      return invalidField("cwd", "no such file or directory");
    case "cwd_not_a_directory":
      return invalidField("cwd", "not a directory");
    case "invalid":
      return new ApiError("validation", refusalOfArgument(error.message), { cause: error });
    case "guest_unfit":
      return guestUnfit(
        error,
        "the guest in the saved state does not come back",
        "start from another checkpoint, or repair it in the session and save it again",
      );
    case "snapshot_unfit":
    case "volume_unfit":
      return new ApiError("conflict", oneLine(error.message, UNFIT_CHARS), { cause: error });
    default:
      return new ApiError(...(REFUSALS[code] ?? UNEXPECTED), { cause: error });
  }
}

const UNEXPECTED: ApiText = ["internal", "the node or the machine failed unexpectedly"];
const NETWORK_PENDING: ApiText = [
  "session_node_unavailable",
  "the node has not confirmed the change of the network yet; it is kept and goes on being applied",
];
const UNLOADABLE: ApiText = [
  "internal",
  "the saved state cannot be loaded: it is damaged, or was made by a QEMU that this host does not have; it was left as it is, and trying again does not help",
];
const UNUSABLE_ARCHIVE: ApiText = [
  "internal",
  "the saved state is only in the object store, and its archive there cannot be used: objects of it are gone or were changed; it was left as it is, and trying again does not help until they are back",
];
const SILENT: ApiText = ["session_unavailable", "the session's machine does not answer at the moment"];

/** The API errors of the node's refusals whose code alone decides the text. */
const REFUSALS: Partial<Record<NodeErrorCode, ApiText>> = {
  disk_pressure: ["node_disk_pressure", "the node has too little free disk for this"],
  no_capacity: ["unavailable", "the node has no room for this at the moment"],
  template_unavailable: ["template_version_unavailable", "the node cannot provide this template"],
  network_conflict: NETWORK_PENDING,
  network_unconfirmed: NETWORK_PENDING,
  capture_failed: [
    "session_unavailable",
    "the session's state could not be saved; the session goes on as before",
  ],
  snapshot_unfrozen: [
    "conflict",
    "what runs in the session could not be frozen when it was paused, so its saved state cannot be copied; resume it first",
  ],
  volume_held: ["conflict", "a machine has the volume still; try again when it is gone"],
  volume_not_found: ["internal", "the node has lost the volume"],
  wrong_state_key: [
    "internal",
    "the saved state was sealed with another key than the session has; it was left as it is, and trying again does not help",
  ],
  archive_unusable: UNUSABLE_ARCHIVE,
  base_not_found: UNUSABLE_ARCHIVE,
  archive_interrupted: [
    "unavailable",
    "the saved state is only in the object store, which does not answer at the moment; nothing has changed",
  ],
  snapshot_damaged: UNLOADABLE,
  snapshot_not_found: UNLOADABLE,
  machine_held: SILENT,
  machine_not_found: SILENT,
  machine_gone: SILENT,
  agent_unavailable: SILENT,
};

/** Contains the guest's own message. It helps the owner of the guest, and only the owner reads it. */
export function guestUnfit(cause: NodeError, what: string, advice: string): ApiError {
  return new ApiError("conflict", `${what}: ${oneLine(cause.message, EXPLANATION_CHARS)}; ${advice}`, {
    cause,
  });
}

/** The API error of each refusal of the agent. The texts are in contract/guest. */
const GUEST_REFUSALS: Record<GuestErrorCode, { code: ErrorCode; field?: "path" | "pattern" | "name" }> = {
  bad_path: { code: "validation", field: "path" },
  outside_workspace: { code: "validation", field: "path" },
  workspace_root: { code: "validation", field: "path" },
  no_such_file: { code: "not_found", field: "path" },
  parent_not_a_directory: { code: "not_found", field: "path" },
  not_a_directory: { code: "validation", field: "path" },
  is_a_directory: { code: "validation", field: "path" },
  not_a_regular_file: { code: "validation", field: "path" },
  permission_denied: { code: "validation", field: "path" },
  read_only: { code: "validation", field: "path" },
  directory_not_empty: { code: "conflict", field: "path" },
  file_exists: { code: "conflict", field: "path" },
  no_space: { code: "conflict", field: "path" },
  too_large: { code: "payload_too_large", field: "path" },
  bad_pattern: { code: "validation", field: "pattern" },
  busy: { code: "validation", field: "path" },

  process_exists: { code: "conflict", field: "name" },
  process_limit: { code: "conflict" },
  process_not_found: { code: "not_found", field: "name" },
  terminal_limit: { code: "rate_limited" },
  spawn_failed: { code: "session_unavailable" },
};

/** Start of an agent's message about another field than the usual one of its code. */
const OTHER_FIELD = /^(dest_path|file_pattern|exclude_dirs): /;
/** Start of an agent's message that explains a refused pattern. */
const LEADING_FIELD = /^[a-z_]+: /;
const EXPLANATION_CHARS = 400;
/** The node's own text, which names two CPUs. */
const UNFIT_CHARS = 1000;

function refusedByGuest(guestCode: GuestErrorCode, error: NodeError): ApiError {
  const { code, field: usual } = GUEST_REFUSALS[guestCode];
  const field = OTHER_FIELD.exec(error.message)?.[1] ?? usual;
  const text = guestCode === "bad_pattern" ? explanation(error) : GUEST_ERRORS[guestCode].text;
  return new ApiError(code, field === undefined ? text : `${field}: ${text}`, { cause: error });
}

/** The agent's explanation of a refused pattern. */
function explanation({ message }: NodeError): string {
  const said = oneLine(message.replace(LEADING_FIELD, ""), EXPLANATION_CHARS).trim();
  return said === "" ? GUEST_ERRORS.bad_pattern.text : said;
}

const FIELD = /^(cwd|command|path|dest_path|pattern|file_pattern|name|query): /;
/** Start of a refusal of query parameters that are valid alone but not together. */
const ABOUT_QUERY = /^the query /;

/** Starts with the field's name, as all validation errors do. */
function refusalOfArgument(message: string): string {
  if (FIELD.test(message)) return message;
  return ABOUT_QUERY.test(message) ? `query: ${message}` : `command: the machine refuses it: ${message}`;
}
