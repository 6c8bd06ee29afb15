/** The cause of a change, as the audit log names it. */
import type { ACTOR_KINDS } from "@vivarium/contract/api";
import type { Principal } from "./principal.ts";

export interface Caller {
  orgId: string;
  actor: { kind: (typeof ACTOR_KINDS)[number]; id: string };
  /** Empty for what the service does by itself, as is `ip`. */
  requestId: string;
  ip: string;
}

/** The caller of a request. The operator belongs to no organisation, and causes no change in one. */
export function callerOf(principal: Principal, { id, ip }: { id: string; ip: string }): Caller {
  return {
    orgId: principal.orgId,
    actor: { kind: principal.kind === "operator" ? "system" : principal.kind, id: principal.credentialId },
    requestId: id,
    ip,
  };
}

/** The service itself, for what no request asked for. */
export function theSystem(orgId: string): Caller {
  return { orgId, actor: { kind: "system", id: "system" }, requestId: "", ip: "" };
}
