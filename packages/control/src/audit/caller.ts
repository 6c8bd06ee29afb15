import type { Principal } from "../access/principal.ts";

/** The caller of a request, as the audit log names it. */
export interface Caller {
  orgId: string;
  actor: { kind: Principal["kind"]; id: string };
  requestId: string;
  ip: string;
}

export function callerOf(principal: Principal, { id, ip }: { id: string; ip: string }): Caller {
  return {
    orgId: principal.orgId,
    actor: { kind: principal.kind, id: principal.credentialId },
    requestId: id,
    ip,
  };
}
