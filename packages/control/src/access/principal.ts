/** The identity of an authenticated request. */
export interface Principal {
  keyId: string;
  orgId: string;
  /** The organisation may only read. */
  isSuspended: boolean;
  /** Set for a key that sees and uses only one project. */
  scopedProjectId: string | null;
  /** The project that sessions are attributed to when a create names none. */
  defaultProjectId: string | null;
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
