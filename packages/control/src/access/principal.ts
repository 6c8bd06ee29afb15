/** Who a request acts as after authentication. */
export interface Principal {
  keyId: string;
  orgId: string;
  /** Set on a key that may see and use one project only. */
  scopedProjectId: string | null;
  /** The project that sessions are attributed to when a create names none. */
  defaultProjectId: string | null;
  /** The key's own ceiling of live sessions; null: the organisation's alone. */
  concurrentSessions: number | null;
}
