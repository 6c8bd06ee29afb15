/**
 * The agent's refusals and their texts. The texts are stable, because clients match them; the agent's own sentence is
 * for logs. Imports nothing.
 */
export const GUEST_ERRORS = {
  bad_path: { status: 400, text: "is no path this machine can use" },
  outside_workspace: { status: 400, text: "path must be under /workspace" },
  workspace_root: { status: 400, text: "the workspace root cannot be removed or renamed" },
  no_such_file: { status: 404, text: "no such file or directory" },
  parent_not_a_directory: { status: 404, text: "not a directory" },
  not_a_directory: { status: 400, text: "not a directory" },
  is_a_directory: { status: 400, text: "is a directory" },
  not_a_regular_file: { status: 400, text: "not a regular file" },
  permission_denied: { status: 400, text: "permission denied" },
  read_only: { status: 400, text: "read-only file system" },
  directory_not_empty: { status: 409, text: "directory not empty" },
  file_exists: { status: 409, text: "file exists" },
  no_space: { status: 409, text: "no space left on device" },
  too_large: { status: 400, text: "the file is larger than this call may read" },
  bad_pattern: { status: 400, text: "the pattern cannot be used" },
  busy: { status: 400, text: "device or resource busy" },

  process_exists: { status: 409, text: "a process of this name is running" },
  process_limit: { status: 409, text: "the session has as many running processes as it may have" },
  process_not_found: { status: 404, text: "no process of this name" },
  terminal_limit: { status: 429, text: "the session has as many terminals as it may have" },
  spawn_failed: { status: 503, text: "the machine cannot start another process" },
} as const;
export type GuestErrorCode = keyof typeof GUEST_ERRORS;

export function isGuestErrorCode(code: string): code is GuestErrorCode {
  return Object.hasOwn(GUEST_ERRORS, code);
}
