/** Renders sessions as a table, and one session as fields. */
import type { Archive, SessionRecord } from "@vivarium/sdk";
import { renderShortConnection } from "./connection.ts";
import { noPaint, type Paint, paintState } from "./paint.ts";
import { renderPairs } from "./pairs.ts";
import { renderFields, renderTable, withoutEmptyColumns } from "./table.ts";
import { formatAge, formatAhead } from "./time.ts";

const HEADINGS = ["ID", "STATE", "SIZE", "TEMPLATE", "AGE", "NAME", "DETAIL"];

export function renderSessions(sessions: SessionRecord[], now: Date, paint: Paint = noPaint): string {
  if (sessions.length === 0) return "No sessions. Create one with: viv create";
  const rows = sessions.map((session) => [
    session.session_id,
    session.state,
    session.size,
    session.template ?? "base",
    formatAge(now.getTime() - Date.parse(session.created_at)),
    session.name ?? "",
    detailOf(session, now),
  ]);
  const columns = withoutEmptyColumns(HEADINGS, rows, HEADINGS.indexOf("NAME"));
  return renderTable(...columns, (padded, { row, heading }) => {
    if (row === 0) return paint("dim", padded);
    return heading === "STATE" ? paintState(paint, sessions[row - 1]?.state ?? "", padded) : padded;
  });
}

/** Text of the DETAIL column. */
export function detailOf(session: SessionRecord, now: Date): string {
  const reason = session.end_reason ?? session.status_reason ?? session.status_detail;
  if (reason !== undefined) return reason;
  const since = session.paused_at && `for ${formatAge(now.getTime() - Date.parse(session.paused_at))}`;
  const until = session.wake_at && `wakes in ${formatAhead(Date.parse(session.wake_at) - now.getTime())}`;
  return [since, until].filter(Boolean).join(", ");
}

export function renderSession(session: Omit<SessionRecord, "timing">, paint: Paint = noPaint): string {
  const fields: [string, string | undefined][] = [
    ["id", session.session_id],
    ["state", session.state],
    ["detail", session.status_reason ?? session.status_detail],
    ["name", session.name],
    ["external id", session.external_id],
    ["size", `${session.size} (${session.vcpus} vCPU, ${session.mem_mb} MB)`],
    ["template", session.template ?? "base"],
    ["secrets", session.secret_names?.join(", ")],
    ["connections", session.connections?.map(renderShortConnection).join(", ")],
    ["isolation", session.isolation],
    ["parent", session.parent_session_id],
    ["from checkpoint", session.from_checkpoint],
    ["created", session.created_at],
    ["last active", session.last_active_at],
    ["paused", session.paused_at],
    ["wakes at", session.wake_at],
    ["saved state", session.snapshot_tier],
    ["archive", session.archive && renderArchive(session.archive)],
    ["idle timeout", renderLimit(session.idle_timeout_ms)],
    ["max lifetime", renderLimit(session.max_lifetime_ms)],
    ["ended", session.ended_at],
    ["end reason", session.end_reason],
    ["labels", renderPairs(session.labels)],
    ["env", renderPairs(session.env)],
    ["egress", session.egress && [session.egress.mode, ...session.egress.allow].join(" ")],
    ...(session.exposed_previews ?? []).map((preview): [string, string] => [
      `port ${preview.port}`,
      [preview.preview_url, `(${preview.visibility}${preview.auth === "bearer" ? ", bearer" : ""})`].join(
        " ",
      ),
    ]),
  ];
  return renderFields(fields, (value, name) => (name === "state" ? paintState(paint, value) : value));
}

/** The status, and why it has failed. */
export function renderArchive({ status, detail }: Archive): string {
  return [status, detail].filter(Boolean).join(": ");
}

function renderLimit(ms: number | undefined): string | undefined {
  return ms === undefined ? undefined : `${ms / 1000} s`;
}
