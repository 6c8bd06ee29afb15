import type { Principal } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";

/** The log shows the actions of everybody in the organisation, so it is read with its unrestricted keys alone. */
export function requireAuditReader({ kind, scopedProjectId, role }: Principal): void {
  if (scopedProjectId !== null)
    throw new ApiError("forbidden", "the audit log is the organisation's; this key is bound to one project");
  if (kind !== "api_key" || role !== "full")
    throw new ApiError("forbidden", "the audit log is read with an API key that has the role full");
}
