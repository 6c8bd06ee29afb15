/**
 * Session states and transitions as data (docs/spec/sessions.md). This table imports nothing: control decides by it,
 * the SDK and the docs are printed from it.
 */

/** States of a session that is not over. */
const CURRENT_STATES = ["creating", "live", "paused", "lifetime_expired", "node_lost", "failed"] as const;

/** States a session row can be in. `destroyed` is never on the wire: history rows show `ended`. */
export const SESSION_STATES = [...CURRENT_STATES, "destroyed"] as const;
export type SessionState = (typeof SESSION_STATES)[number];

/** Values of `state` on the wire. */
export const WIRE_STATES = [...CURRENT_STATES, "ended"] as const;
export type WireState = (typeof WIRE_STATES)[number];

/** Values of the `state` filter of `GET /v1/sessions`. */
export const LIST_STATES = ["live", "paused", "creating", "ended"] as const;
export type ListState = (typeof LIST_STATES)[number];

export const END_REASONS = [
  "client_destroy",
  "shell_exit",
  "on_detach_destroy",
  "max_lifetime",
  "paused_ttl",
  "error",
] as const;
export type EndReason = (typeof END_REASONS)[number];

/** Events that can change a session's state. */
export const SESSION_EVENTS = [
  "create",
  "provisioned",
  "provision_failed",
  "machine_lost",
  "machine_found",
  "saved_state_found",
  "failed_expired",
  "pause",
  "last_pty_detached_pause",
  "last_pty_detached_destroy",
  "last_pty_detached_keep_live",
  "idle_timeout",
  "continuous_live_limit",
  "host_shutdown",
  "max_lifetime",
  "max_lifetime_pause_failed",
  "resume",
  "operation_wake",
  "tunnel_attach",
  "wake_at_reached",
  "paused_ttl_exceeded",
  "first_exec_completed",
  "node_declared_lost",
  "recover",
  "restore",
  "destroy",
] as const;
export type SessionEvent = (typeof SESSION_EVENTS)[number];

/** One allowed change of state. `from: null` creates the session. */
export interface Transition {
  readonly from: SessionState | null;
  readonly event: SessionEvent;
  readonly to: SessionState;
  /** The session gets another machine: its incarnation is raised. */
  readonly newMachine?: true;
  /** `end_reason` of the history row; the DELETE query chooses among the first two of END_REASONS. */
  readonly endReason?: EndReason;
}

/** The state table, row by row. A pair (from, event) without a row is refused. */
export const TRANSITIONS: readonly Transition[] = [
  { from: null, event: "create", to: "creating" },
  { from: "creating", event: "provisioned", to: "live", newMachine: true },
  { from: "creating", event: "provision_failed", to: "failed" },
  { from: "live", event: "pause", to: "paused" },
  { from: "live", event: "last_pty_detached_pause", to: "paused" },
  { from: "live", event: "last_pty_detached_destroy", to: "destroyed", endReason: "on_detach_destroy" },
  { from: "live", event: "last_pty_detached_keep_live", to: "live" },
  { from: "live", event: "idle_timeout", to: "paused" },
  { from: "live", event: "continuous_live_limit", to: "paused" },
  { from: "live", event: "host_shutdown", to: "paused" },
  { from: "live", event: "max_lifetime", to: "lifetime_expired" },
  { from: "paused", event: "max_lifetime", to: "lifetime_expired" },
  { from: "live", event: "max_lifetime_pause_failed", to: "destroyed", endReason: "max_lifetime" },
  { from: "paused", event: "pause", to: "paused" },
  { from: "live", event: "resume", to: "live" },
  { from: "paused", event: "resume", to: "live", newMachine: true },
  { from: "paused", event: "operation_wake", to: "live", newMachine: true },
  { from: "paused", event: "tunnel_attach", to: "live", newMachine: true },
  { from: "paused", event: "wake_at_reached", to: "live", newMachine: true },
  { from: "live", event: "wake_at_reached", to: "live" },
  { from: "paused", event: "paused_ttl_exceeded", to: "destroyed", endReason: "paused_ttl" },
  { from: "lifetime_expired", event: "paused_ttl_exceeded", to: "destroyed", endReason: "paused_ttl" },
  { from: "live", event: "node_declared_lost", to: "node_lost" },
  { from: "paused", event: "node_declared_lost", to: "node_lost" },
  { from: "node_lost", event: "recover", to: "live", newMachine: true },
  { from: "live", event: "restore", to: "live", newMachine: true },
  { from: "paused", event: "restore", to: "live", newMachine: true },
  { from: "live", event: "machine_lost", to: "failed" }, // the machine died and its memory cannot be restored
  { from: "creating", event: "machine_found", to: "live", newMachine: true }, // the row is older than its machine
  { from: "live", event: "machine_found", to: "live", newMachine: true }, // the row is older than its machine
  { from: "paused", event: "machine_found", to: "live", newMachine: true }, // the row is older than its machine
  { from: "creating", event: "saved_state_found", to: "paused" }, // the row is older than its saved state
  { from: "live", event: "saved_state_found", to: "paused" }, // the row is older than its saved state
  { from: "paused", event: "saved_state_found", to: "paused" }, // the row is older than its saved state
  { from: "failed", event: "failed_expired", to: "destroyed", endReason: "error" },
  ...CURRENT_STATES.flatMap((from): Transition[] => [
    { from, event: "destroy", to: "destroyed", endReason: "client_destroy" },
    { from, event: "first_exec_completed", to: "destroyed", endReason: "client_destroy" },
  ]),
];

/** The table's row for (from, event); undefined when the event is refused in this state. */
export function findTransition(from: SessionState | null, event: SessionEvent): Transition | undefined {
  return TRANSITIONS.find((row) => row.from === from && row.event === event);
}
