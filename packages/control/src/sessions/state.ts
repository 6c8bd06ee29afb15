/** The session's life as pure decisions over the contract's transition table. Nothing else names a target state. */
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

/** What a legal event does to a session. Written by compare-and-set against the standing it was decided on. */
export interface Move extends Standing {
  from: Standing;
  event: SessionEvent;
  endReason?: EndReason;
}

export const FIRST_STATE = bornState();

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
 * The move to what the node has of a session whose row is older than that: a machine, or a saved state, of this number.
 * Only a row that was brought back from a backup is.
 */
export function decideFound(
  from: Standing,
  event: Extract<SessionEvent, "machine_found" | "saved_state_found">,
  incarnation: number,
): Move | undefined {
  const move = decide(from, event);
  return move && { ...move, incarnation };
}

/**
 * The machine a session has, or may have: while it is being provisioned, the one that the next incarnation gets.
 * Incarnation 0 means that no machine was ever handed out, so only number 1 can exist.
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

/** The machine that a session gets when it wakes or goes back to a checkpoint. */
export function nextMachineIdOf(session: { id: string; incarnation: number }): string {
  return `${session.id}-${session.incarnation + 1}`;
}

/** The machine that a restore exchanged for this one; none comes before the first. */
export function previousMachineIdOf(session: { id: string; incarnation: number }): string | undefined {
  return session.incarnation > 1 ? `${session.id}-${session.incarnation - 1}` : undefined;
}

/** States that hold a machine and a slot under the ceiling. */
export const ACTIVE_STATES = ["creating", "live"] as const satisfies readonly SessionState[];

export function isActive(state: SessionState): boolean {
  return (ACTIVE_STATES as readonly string[]).includes(state);
}

/** Nothing of the session is wanted on a node any more. */
export function hasEnded(state: SessionState): boolean {
  return state === "failed" || state === "destroyed";
}

/** The state that a session wakes from. */
export const WAKES_FROM: SessionState = "paused";

/** A machine is still to come. */
export function isAwaited(state: SessionState): boolean {
  return state === FIRST_STATE;
}

/** A live stretch begins. When a machine that was found began to run is not known: it counts from then. */
export function entersLife({ from, state, event }: Move): boolean {
  return state === "live" && (from.state !== "live" || event === "machine_found");
}

/** The row is older than what its node has: what it says of deadlines was so at another time. */
export function isFound({ event }: Pick<Move, "event">): boolean {
  return event === "machine_found" || event === "saved_state_found";
}

/** The machine gives way to its saved state. */
export function entersRest({ from, state }: Move): boolean {
  return from.state === "live" && (state === "paused" || state === "lifetime_expired");
}

/** States in which a deadline can be reached. */
export function hasClocks(state: SessionState): boolean {
  return state === "live" || state === "paused" || state === "lifetime_expired";
}

/** A DELETE may say that a shell's exit caused it. */
function endReasonOf(row: Transition, asked: EndReason | undefined): EndReason | undefined {
  return row.event === "destroy" && asked ? asked : row.endReason;
}

function bornState(): SessionState {
  const birth = findTransition(null, "create");
  if (!birth) throw new Error("the transition table has no birth");
  return birth.to;
}
