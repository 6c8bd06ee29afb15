import type { AuditEntry } from "@vivarium/contract/api";
import type { AuditRow } from "./store.ts";

export function toEntry(row: AuditRow): AuditEntry {
  return {
    id: row.id,
    at: row.at.toISOString(),
    actor: { kind: row.actor_kind as AuditEntry["actor"]["kind"], id: row.actor_id },
    action: row.action,
    target: row.target,
    outcome: row.outcome,
    ...(row.code !== null && { code: row.code }),
    request_id: row.request_id,
    ip: row.ip,
    meta: row.meta as AuditEntry["meta"],
  };
}
