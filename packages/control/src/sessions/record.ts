/** Turns a session's row into its public record. Unset optional fields are left out. */
import {
  type ConnectionStatus,
  type EndReason,
  LIMITS,
  type PtyDetachPolicy,
  type SessionRecord,
  SIZES,
  type Size,
  type WireState,
} from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import { readShownStates, type ShownState } from "../archive-records/shown.ts";
import { readShownConnections } from "../connection-records/status.ts";
import { readShownVariables, type SecretDeps, type ShownVariables } from "../secrets/variables.ts";
import type { PreviewUrls } from "./preview-urls.ts";
import { exposedPreviews } from "./preview-urls.ts";
import type { SessionRow } from "./store.ts";

interface RecordParts {
  /** The part of the session's variables and secrets that the record shows. */
  variables: ShownVariables;
  /** Absent if the session never had one. */
  connections: ConnectionStatus[] | undefined;
  /** Where its saved state is. */
  saved: ShownState;
  withTiming?: boolean;
}

/** The record of one session, with its variables. */
export async function recordOf(
  deps: PreviewUrls & SecretDeps & { log: Log },
  row: SessionRow,
  options: { withTiming?: boolean } = {},
): Promise<SessionRecord> {
  const partsOf = await readRecordParts(deps, [row]);
  return toRecord(deps, row, { ...partsOf(row), ...options });
}

/** Reads what the records of these sessions show beside their rows. */
export async function readRecordParts(
  deps: SecretDeps & { log: Log },
  rows: readonly SessionRow[],
): Promise<(row: SessionRow) => RecordParts> {
  const variablesOf = await readShownVariables(deps, rows);
  const connectionsOf = await readShownConnections(deps.db, rows);
  const savedOf = await readShownStates(
    deps.db,
    rows.filter(isSaved).map((row) => row.snapshot_id),
  );
  return (row) => ({
    variables: variablesOf(row),
    connections: connectionsOf(row),
    saved: savedOf(row.snapshot_id),
  });
}

export function toRecord(urls: PreviewUrls, row: SessionRow, parts: RecordParts): SessionRecord {
  if (row.state === "destroyed") return toEndedRecord(row);
  const { variables, connections } = parts;
  const record = {
    ...toCurrentRecord(urls, row, { state: row.state, saved: parts.saved }),
    ...variables,
    ...(connections && { connections }),
  };
  return parts.withTiming && row.timings ? { ...record, timing: row.timings } : record;
}

function toCurrentRecord(
  urls: PreviewUrls,
  row: SessionRow,
  { state, saved }: { state: WireState; saved: ShownState },
): SessionRecord {
  return {
    ...common(row, state),
    no_sudo: row.no_sudo,
    on_pty_detach: row.on_pty_detach as PtyDetachPolicy,
    paused_ttl_ms: row.paused_ttl_ms,
    egress: row.egress,
    wake_on_http: row.wake_on_http,
    ...(row.idle_timeout_ms !== null && { idle_timeout_ms: row.idle_timeout_ms }),
    ...(row.max_lifetime_ms !== null && { max_lifetime_ms: row.max_lifetime_ms }),
    ...(row.destroy_on_completion && { destroy_on_completion: true }),
    ...(row.exposed && {
      exposed_ports: row.exposed.map(({ port }) => port),
      exposed_previews: exposedPreviews(urls, row),
    }),
    ...progress(row, saved),
  };
}

function progress(row: SessionRow, { archive, tier }: ShownState): Partial<SessionRecord> {
  return {
    ...(isOfMachine(row) && row.isolation !== null && { isolation: row.isolation }),
    ...(row.state === "creating" && { status_detail: row.status_detail ?? "starting" }),
    ...(row.status_reason && REASONED.has(row.state) && { status_reason: row.status_reason }),
    ...(row.state === "live" && {
      ...(row.pause_detail !== null && { status_detail: row.pause_detail }),
      active_since: (row.live_since ?? row.created_at).toISOString(),
      max_active_window_ms: LIMITS.continuousLiveMs,
      ...(row.guest_ip !== null && { guest_ip: row.guest_ip }),
    }),
    ...(row.state === "paused" && {
      ...(row.paused_at && { paused_at: row.paused_at.toISOString() }),
      ...(row.wake_at && { wake_at: row.wake_at.toISOString() }),
      snapshot_tier: tier,
    }),
    ...(isSaved(row) && { archive }),
    ...(row.incarnation > 0 && { resumed_at: (row.resumed_at ?? row.created_at).toISOString() }),
    ...(row.parent_session_id !== null && { parent_session_id: row.parent_session_id }),
    ...(row.origin_checkpoint_id !== null && { from_checkpoint: row.origin_checkpoint_id }),
  };
}

/** A saved state continues as its machine ran. */
const isOfMachine = ({ state }: SessionRow) => state === "live" || state === "paused";

/** States whose record includes `status_reason`. */
const REASONED: ReadonlySet<string> = new Set(["failed", "lifetime_expired"]);

function isSaved({ state, snapshot_id }: SessionRow): boolean {
  return (
    snapshot_id !== null && (state === "paused" || state === "lifetime_expired" || state === "node_lost")
  );
}

function toEndedRecord(row: SessionRow): SessionRecord {
  return {
    ...common(row, "ended"),
    ended_at: (row.ended_at ?? row.last_active_at).toISOString(),
    end_reason: (row.end_reason ?? "error") as EndReason,
  };
}

function common(row: SessionRow, state: WireState): SessionRecord {
  const size = SIZES[row.size as Size];
  return {
    session_id: row.id,
    state,
    created_at: row.created_at.toISOString(),
    last_active_at: row.last_active_at.toISOString(),
    size: row.size,
    vcpus: size.vcpus,
    mem_mb: size.mem_mb,
    ...(row.name !== null && { name: row.name }),
    ...(row.labels && { labels: row.labels }),
    ...(row.external_id && { external_id: row.external_id }),
    ...(row.project_id !== null && { project_id: row.project_id }),
    ...(row.template !== "base" && { template: row.template }),
    ...(row.volume_id !== null && { volume_id: row.volume_id }),
  };
}

/** Activity of this process that is not yet in the rows. `unflushed()` must be called before the rows are read. */
export interface UnflushedActivity {
  unflushed(): (sessionId: string) => Date | undefined;
}

/** The row with unflushed activity merged in. A session that has ended has no activity. */
export function withActivity(
  unflushed: ReturnType<UnflushedActivity["unflushed"]>,
  row: SessionRow,
): SessionRow {
  if (row.ended_at !== null) return row;
  const seen = unflushed(row.id);
  return seen && seen > row.last_active_at ? { ...row, last_active_at: seen } : row;
}
