/**
 * Entries of the audit log, and what proves that the service wrote them. Pure.
 *
 * Each row has a seal: a digest of its content under a key that is not in the database. So a row that somebody else puts in
 * or changes is recognised even before it is in the chain.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { type AuditAction, type AuditMeta, type ErrorCode, ID_PREFIXES } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import { keyedDigest } from "../access/pepper.ts";
import type { AuditRow, NewAuditRow } from "./store.ts";

export interface NewEntry {
  by: Caller;
  action: AuditAction;
  /** Id of what was changed, or was to be. */
  target: string;
  sessionId?: string | null;
  outcome?: "pending" | "ok" | "denied";
  code?: ErrorCode;
  /** No secrets, tokens, bodies or file contents: the fields of `AuditMeta` alone. */
  meta?: AuditMeta;
}

/** Fields of `meta` that a command gets when it ends. */
const OF_THE_END: ReadonlySet<string> = new Set(["exit_code", "duration_ms", "timed_out"]);

/** The key of seals and of the chain, derived from the pepper, which is in a file outside of the database. */
export function auditKeyOf(pepper: Buffer): Buffer {
  return keyedDigest(pepper, "audit-log", "1");
}

export function newRow(auditKey: Buffer, entry: NewEntry): NewAuditRow & { id: string; seal: Buffer } {
  const { by, action, target, sessionId = null, outcome = "ok", code = null, meta = {} } = entry;
  const row = {
    id: ID_PREFIXES.audit + randomId(),
    org_id: by.orgId,
    session_id: sessionId,
    at: new Date(),
    actor_kind: by.actor.kind,
    actor_id: by.actor.id,
    action,
    target,
    outcome,
    code,
    request_id: by.requestId,
    ip: by.ip,
    meta: JSON.stringify(meta),
  };
  return { ...row, seal: sealOf(auditKey, row) };
}

/** The pending row with the outcome of its command. */
export function completedRow<Row extends Content & { meta: string }>(
  auditKey: Buffer,
  row: Row,
  outcome: "ok" | "error",
  end: AuditMeta,
): Row & { outcome: "ok" | "error"; seal: Buffer } {
  const whole = { ...row, outcome, meta: JSON.stringify({ ...JSON.parse(row.meta), ...end }) };
  return { ...whole, seal: sealOf(auditKey, whole) };
}

type Content = Omit<AuditRow, "seq" | "meta" | "seal" | "linked" | "written_at"> & {
  meta: string | Record<string, unknown>;
};

/** Everything of an entry that may never change, in one form. Of a pending entry, `start` leaves out what its end adds. */
function canonical(row: Content, part: "whole" | "start"): string {
  const meta = (typeof row.meta === "string" ? JSON.parse(row.meta) : row.meta) as Record<string, unknown>;
  const names = Object.keys(meta).filter((name) => part === "whole" || !OF_THE_END.has(name));
  return JSON.stringify([
    "vivarium audit entry 1",
    row.id,
    row.org_id,
    row.session_id,
    row.at.toISOString(),
    row.actor_kind,
    row.actor_id,
    row.action,
    row.target,
    part === "whole" ? row.outcome : "pending",
    row.code,
    row.request_id,
    row.ip,
    names.sort().map((name) => [name, inOrder(meta[name])]),
  ]);
}

/** With the fields of objects by name, at every depth: the database keeps them in an order of its own. */
function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== "object" || value === null) return value;
  const fields = Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1));
  return Object.fromEntries(fields.map(([name, inner]) => [name, inOrder(inner)]));
}

/** The part of an entry that its link in the chain covers: its content, and its place among the rows. */
export function digestOf(row: Content & { seq: number }, part: "whole" | "start"): Buffer {
  return createHash("sha256")
    .update(`${row.seq} ${canonical(row, part)}`)
    .digest();
}

function sealOf(auditKey: Buffer, row: Content): Buffer {
  return sealText(auditKey, canonical(row, "whole"));
}

export function sealText(auditKey: Buffer, text: string): Buffer {
  return createHmac("sha256", auditKey).update(text).digest();
}

/** Whether the service wrote the row as it is. */
export function isSealed(auditKey: Buffer, row: Content & { seal: Buffer | null }): boolean {
  return row.seal !== null && isSame(row.seal, sealOf(auditKey, row));
}

export function isSame(one: Buffer, other: Buffer): boolean {
  return one.length === other.length && timingSafeEqual(one, other);
}
