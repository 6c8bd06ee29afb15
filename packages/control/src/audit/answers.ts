/** Writes entries by the answers of requests: denials, and the changes inside guests. */
import { auditActionOf, type ErrorCode, isAuditedAfterAnswer } from "@vivarium/contract/api";
import { type Caller, callerOf } from "../access/caller.ts";
import { ApiError, EndedCredential, SessionNotFound } from "../errors/api-error.ts";
import type { Answered } from "../http/answered.ts";
import type { DenialDeps, Denials } from "./denials.ts";
import { newRow } from "./entry.ts";

/**
 * Answers that refuse a caller a thing or an action. Other errors are no denials: an invalid request, a state that does not
 * allow a change, a failure of the service.
 */
const DENIALS: ReadonlySet<ErrorCode> = new Set([
  "unauthenticated",
  "payment_required",
  "forbidden",
  "not_found",
  "egress_capped",
  "rate_limited",
  "account_concurrency_exceeded",
  "key_concurrency_exceeded",
]);
/** Their 404 is about a thing in the guest, unless it is about the session. */
const OF_A_GUEST = /^\/v1\/sessions\/:id\/(files|processes)/;

export async function auditAnswer(
  deps: DenialDeps & { denials: Denials },
  answered: Answered,
): Promise<void> {
  if (answered.refusal) await auditRefusal(deps, answered, answered.refusal);
  else auditGuestChange(deps, answered);
}

async function auditRefusal(
  { denials }: { denials: Denials },
  answered: Answered,
  error: ApiError,
): Promise<void> {
  if (!isDenial(answered, error)) return;
  const by = await callerOfDenial(denials, answered, error);
  if (!by) return;
  // A caller without a credential may name a thing of another organisation than the one that reads the entry.
  const named = by.actor.kind === "anonymous" ? { target: "", sessionId: null } : targetOf(answered);
  denials.add({ by, code: error.code, operation: answered.operationId, ...named });
}

/** Writes the entry of an item of a batch that was denied. */
export function auditDeniedItem(
  { denials }: { denials: Denials },
  error: unknown,
  { by, operation, sessionId }: { by: Caller; operation: string; sessionId: string },
): void {
  if (!(error instanceof ApiError) || !DENIALS.has(error.code)) return;
  const target = shortened(sessionId);
  denials.add({ by, code: error.code, operation, target, sessionId: target });
}

function isDenial({ principal, operationId, route }: Answered, error: ApiError): boolean {
  if (!DENIALS.has(error.code)) return false;
  if (error.code !== "not_found") return true;
  const isOfGuest = OF_A_GUEST.test(route) && !(error instanceof SessionNotFound);
  return principal !== null && operationId !== undefined && !isOfGuest;
}

async function callerOfDenial(
  denials: Denials,
  { principal, id: requestId, ip }: Answered,
  error: ApiError,
): Promise<Caller | undefined> {
  if (principal?.kind === "operator") return undefined;
  if (principal) return callerOf(principal, { id: requestId, ip });
  if (error instanceof EndedCredential) {
    const { kind, id, orgId } = error.credential;
    return { orgId, actor: { kind, id }, requestId, ip };
  }
  const orgId = await denials.firstOrg();
  return orgId === undefined
    ? undefined
    : { orgId, actor: { kind: "anonymous", id: "anonymous" }, requestId, ip };
}

function auditGuestChange({ auditKey, auditQueue }: DenialDeps, answered: Answered): void {
  const { principal, operationId, status, body } = answered;
  if (!principal || status >= 300 || !isAuditedAfterAnswer(operationId) || isRead(operationId, body)) return;
  const by = callerOf(principal, answered);
  auditQueue.add(newRow(auditKey, { by, action: auditActionOf(operationId), ...targetOf(answered) }));
}

/** `POST …/files` does by its `op` what other endpoints do, reads as well. */
function isRead(operation: string | undefined, body: unknown): boolean {
  return operation === "callFiles" && (body as { op?: unknown } | null)?.op !== "write";
}

/** The thing that the path names: a session, or the first of its other parameters. At most as long as an id can be. */
function targetOf({ params }: Answered): { target: string; sessionId: string | null } {
  const target = shortened(params.id ?? Object.values(params)[0] ?? "");
  return { target, sessionId: params.id === undefined ? null : target };
}

function shortened(id: string): string {
  return id.slice(0, 128).replaceAll("\0", "").toWellFormed();
}
