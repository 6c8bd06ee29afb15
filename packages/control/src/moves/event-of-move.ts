/** The event that a move of a session emits. Pure. */
import type { MOVE_ACTIONS, SessionState } from "@vivarium/contract/api";
import { isCreating, type Move } from "../sessions/state.ts";

interface MoveEvent {
  type: keyof typeof MOVE_ACTIONS;
  data: Record<string, unknown>;
}

interface Facts {
  statusReason?: string;
  /** The checkpoint that the session was restored to. */
  restoredFrom?: string;
}

const ENDS: Partial<Record<SessionState, MoveEvent["type"]>> = {
  lifetime_expired: "session.lifetime_expired",
  node_lost: "session.node_lost",
  failed: "session.failed",
  destroyed: "session.destroyed",
};

/** Undefined if the move changes nothing that a caller can see. */
export function eventOfMove(move: Move, { statusReason, restoredFrom }: Facts = {}): MoveEvent | undefined {
  const { from, state, event, endReason } = move;
  const end = ENDS[state];
  if (end !== undefined) {
    const data = {
      ...(statusReason !== undefined && { status_reason: statusReason }),
      ...(endReason !== undefined && { end_reason: endReason }),
    };
    return state === from.state ? undefined : { type: end, data };
  }
  const type = typeOfStart(move);
  if (type === undefined) return undefined;
  const restored = event === "restore" && restoredFrom !== undefined && { checkpoint_id: restoredFrom };
  return { type, data: { state, ...(type !== "session.live" && { reason: event }), ...restored } };
}

function typeOfStart({ from, state, incarnation, event }: Move): MoveEvent["type"] | undefined {
  if (event === "restore") return "session.restored";
  if (event === "recover") return "session.recovered";
  if (state === "paused") return from.state === "paused" ? undefined : "session.paused";
  if (state !== "live" || incarnation === from.incarnation) return undefined;
  return isCreating(from.state) ? "session.live" : "session.resumed";
}
