/** The identity of an authenticated request. */
import type { Capability, KeyRole } from "@vivarium/contract/api";

export interface Principal {
  /** `operator`: of the installation, and of no organisation. */
  kind: "api_key" | "scoped_token" | "operator";
  /** Id of the key, or hash of the token. */
  credentialId: string;
  /** The key, or the key that minted the token; empty if that one is no more. */
  keyId: string;
  orgId: string;
  /** The organisation may only read. */
  isSuspended: boolean;
  role: KeyRole;
  /** Set for a key that sees and uses only one project. */
  scopedProjectId: string | null;
  /** The project that sessions are attributed to when a create names none. */
  defaultProjectId: string | null;
  /** Set for a token: the one session that it reaches, and its rights there. */
  session?: { id: string; capabilities: readonly Capability[] };
  expiresAt: Date | null;
  /** The key's own limit of live sessions; null: only the organisation's limit. */
  concurrentSessions: number | null;
}

/** The part of the data that a principal sees: its organisation, or one project if the key is bound to it. */
export interface Scope {
  orgId: string;
  projectId: string | null;
}

export function scopeOf(principal: Principal): Scope {
  return { orgId: principal.orgId, projectId: principal.scopedProjectId };
}

/** A caller with the operator's key. Its routes ask for nothing else of a principal. */
export const OPERATOR: Principal = {
  kind: "operator",
  credentialId: "operator",
  keyId: "",
  orgId: "",
  isSuspended: false,
  role: "full",
  scopedProjectId: null,
  defaultProjectId: null,
  expiresAt: null,
  concurrentSessions: null,
};
