import type { SessionRecord } from "@vivarium/sdk";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

export function renderSessions(sessions: SessionRecord[], now: Date): string {
  if (sessions.length === 0) return "No sessions. Create one with: viv create";
  const rows = sessions.map((session) => [
    session.session_id,
    session.state,
    session.size,
    session.template ?? "base",
    formatAge(now.getTime() - Date.parse(session.created_at)),
    session.name ?? "",
    session.end_reason ?? session.status_reason ?? session.status_detail ?? "",
  ]);
  const headings = ["ID", "STATE", "SIZE", "TEMPLATE", "AGE", "NAME", "DETAIL"];
  // An empty last column is noise: most lists have nothing to tell there.
  const columns = headings.map((_, i) => i).filter((i) => i < 5 || rows.some((row) => row[i] !== ""));
  const pick = (line: string[]) => columns.map((i) => line[i] ?? "");
  return renderTable(pick(headings), rows.map(pick));
}

export function renderSession(session: SessionRecord): string {
  return renderFields([
    ["id", session.session_id],
    ["state", session.state],
    ["detail", session.status_reason ?? session.status_detail],
    ["name", session.name],
    ["external id", session.external_id],
    ["size", `${session.size} (${session.vcpus} vCPU, ${session.mem_mb} MB)`],
    ["template", session.template ?? "base"],
    ["created", session.created_at],
    ["last active", session.last_active_at],
    ["ended", session.ended_at],
    ["end reason", session.end_reason],
    ["labels", renderPairs(session.labels)],
    ["env", renderPairs(session.env)],
    ["egress", session.egress && [session.egress.mode, ...session.egress.allow].join(" ")],
  ]);
}

function renderPairs(pairs: Record<string, string> | undefined): string | undefined {
  return (
    pairs &&
    Object.entries(pairs)
      .map(([key, value]) => `${key}=${value}`)
      .join(" ")
  );
}
