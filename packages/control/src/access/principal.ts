/** Who a request acts as after authentication. */
export interface Principal {
  keyId: string;
  orgId: string;
  /** The organisation may read, and do nothing else. */
  isSuspended: boolean;
  /** Set on a key that may see and use one project only. */
  scopedProjectId: string | null;
  /** The project that sessions are attributed to when a create names none. */
  defaultProjectId: string | null;
  /** The key's own ceiling of live sessions; null: the organisation's alone. */
  concurrentSessions: number | null;
}

/** What a principal may see: its organisation, and its project alone where the key is bound to one. */
export interface Scope {
  orgId: string;
  projectId: string | null;
}

export function scopeOf(principal: Principal): Scope {
  return { orgId: principal.orgId, projectId: principal.scopedProjectId };
}
