/** Session state machine: pure decisions over the contract's transition table. No other file chooses a target state. */
import {
  type EndReason,
  findTransition,
  type SessionEvent,
  type SessionState,
  type Transition,
} from "@vivarium/contract/api";

export interface Standing {
  state: SessionState;
  incarnation: number;
}

/** The effect of an allowed event. Written by compare-and-set against the standing it was decided on (`from`). */
export interface Move extends Standing {
  from: Standing;
  event: SessionEvent;
  endReason?: EndReason;
}

export const FIRST_STATE = initialState();

/** The move for an event, or undefined when the table refuses it. */
export function decide(from: Standing, event: SessionEvent, endReason?: EndReason): Move | undefined {
  const row = findTransition(from.state, event);
  if (!row) return undefined;
  return {
    from: { state: from.state, incarnation: from.incarnation },
    event,
    state: row.to,
    incarnation: from.incarnation + (row.newMachine ? 1 : 0),
    endReason: row.endReason && endReasonOf(row, endReason),
  };
}

/**
 * The move that catches an old row up with its node: to a machine, or a saved state, of this incarnation. Rows are
 * older than their node only after the database was restored from a backup.
 */
export function decideCatchUp(
  from: Standing,
  event: Extract<SessionEvent, "machine_found" | "saved_state_found">,
  incarnation: number,
): Move | undefined {
  const move = decide(from, event);
  return move && { ...move, incarnation };
}

/**
 * The session's machine. Before the first move to live the incarnation is 0, and the machine that is being provisioned
 * has number 1.
 */
export function machineIdOf(session: { id: string; incarnation: number }): string {
  return `${session.id}-${Math.max(session.incarnation, 1)}`;
}

export function incarnationOf(machineId: string): number {
  return Number(machineId.split("-", 2)[1]);
}

export function sessionIdOf(machineId: string): string {
  return machineId.split("-", 1)[0] ?? "";
}

/** The machine that a session gets when it wakes or is restored. */
export function nextMachineIdOf(session: { id: string; incarnation: number }): string {
  return `${session.id}-${session.incarnation + 1}`;
}

/** The machine that a restore replaced by the present one; undefined for the first machine. */
export function previousMachineIdOf(session: { id: string; incarnation: number }): string | undefined {
  return session.incarnation > 1 ? `${session.id}-${session.incarnation - 1}` : undefined;
}

/** States that count under the ceilings: the session has a machine, or is getting its first. */
export const ACTIVE_STATES = ["creating", "live"] as const satisfies readonly SessionState[];

export function isActive(state: SessionState): boolean {
  return (ACTIVE_STATES as readonly string[]).includes(state);
}

/** Whether the session needs nothing on its node any more. */
export function hasEnded(state: SessionState): boolean {
  return state === "failed" || state === "destroyed";
}

/** The state that a session wakes from. */
export const WAKES_FROM: SessionState = "paused";

/** Whether the session has not been live yet. */
export function isCreating(state: SessionState): boolean {
  return state === FIRST_STATE;
}

/** Whether a live period begins. The start of a machine found on the node is unknown: the catch-up counts instead. */
export function entersLive({ from, state, event }: Move): boolean {
  return state === "live" && (from.state !== "live" || event === "machine_found");
}

/** Whether the move catches an old row up with its node. The row's deadlines are outdated too. */
export function isCatchUp({ event }: Pick<Move, "event">): boolean {
  return event === "machine_found" || event === "saved_state_found";
}

/** Whether the move stops the machine and saves its state. */
export function entersPause({ from, state }: Move): boolean {
  return from.state === "live" && (state === "paused" || state === "lifetime_expired");
}

/** States in which a deadline can be reached. */
export function hasDeadlines(state: SessionState): boolean {
  return state === "live" || state === "paused" || state === "lifetime_expired";
}

/** A DELETE may give its own end reason, such as the exit of a shell. */
function endReasonOf(row: Transition, asked: EndReason | undefined): EndReason | undefined {
  return row.event === "destroy" && asked ? asked : row.endReason;
}

function initialState(): SessionState {
  const create = findTransition(null, "create");
  if (!create) throw new Error("the transition table has no create");
  return create.to;
}
