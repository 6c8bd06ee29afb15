/** The lease columns after a move. */
import { type RawBuilder, sql } from "kysely";
import { entersLive, entersPause, isCatchUp, isCreating, type Move } from "../sessions/state.ts";

export function leaseColumns(move: Move) {
  return { provision_claimed_until: null, ...timeOfCommand(move) };
}

/**
 * The only command of a `destroy_on_completion` session stops with its machine, so a pause saves the rest of its time
 * and a wake continues with it. A restore goes back to before the command.
 */
function timeOfCommand(move: Move) {
  const isOnly = sql<boolean>`destroy_on_completion and origin = 'api'`;
  if (isCatchUp(move)) return timeOfFoundCommand(move, isOnly);
  if (move.event === "restore") {
    return {
      destroy_after: sql<Date | null>`case when ${isOnly} then null else destroy_after end`,
      command_left_ms: null,
      command_goes_on: false,
    };
  }
  if (entersPause(move)) {
    return {
      command_left_ms: sql<number | null>`case when ${isOnly} and destroy_after is not null
        then greatest(0, extract(epoch from destroy_after - now()) * 1000)::bigint end`,
    };
  }
  if (!entersLive(move)) return {};
  return {
    destroy_after: sql<Date | null>`case when command_left_ms is null then destroy_after
      else now() + make_interval(secs => command_left_ms / 1000.0) end`,
    command_goes_on: sql<boolean>`command_left_ms is not null`,
    command_left_ms: null,
  };
}

/** The least time that a command gets after a catch-up: as much as it gets beyond its own timeout. */
const FOUND_COMMAND_MS = 30_000;

/**
 * After a catch-up, the time that the command had left when the session was last used counts from now, or from the
 * wake. A session that was in creation in the backup has become live since, so its provisional lease is over.
 */
function timeOfFoundCommand({ from, state }: Move, isOnly: RawBuilder<boolean>) {
  if (isCreating(from.state)) return { destroy_after: null, command_left_ms: null };
  const left = sql<number | null>`case when ${isOnly} and destroy_after is not null then greatest(
    coalesce(command_left_ms, extract(epoch from destroy_after - last_active_at) * 1000), ${FOUND_COMMAND_MS}
  )::bigint end`;
  if (state !== "live") {
    return {
      destroy_after: sql<Date | null>`case when ${isOnly} then destroy_after end`,
      command_left_ms: left,
    };
  }
  return {
    destroy_after: sql<Date | null>`now() + make_interval(secs => ${left} / 1000.0)`,
    command_goes_on: sql<boolean>`${left} is not null`,
    command_left_ms: null,
  };
}
