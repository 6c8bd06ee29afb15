/**
 * Entries for denials: answers that refuse a caller what it may not have. Other errors are none: an invalid request, a state
 * that does not allow a change, a failure of the service.
 *
 * Hazard: anybody can make the service deny something, as fast as it answers. So of each caller, and of all unknown callers
 * together, only so many denials of a minute have an entry each. The others are counted in one entry.
 */
import {
  type AuditMeta,
  auditActionOf,
  type ErrorCode,
  isAuditedAfterAnswer,
  LIMITS,
  SUPPRESSED,
} from "@vivarium/contract/api";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type Caller, callerOf } from "../access/caller.ts";
import type { Database } from "../db/pool.ts";
import { type ApiError, EndedCredential, SessionNotFound } from "../errors/api-error.ts";
import type { AuditDeps } from "./append.ts";
import { newRow } from "./entry.ts";
import type { EntryQueue } from "./entry-queue.ts";
import { findFirstOrg } from "./store.ts";

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
const MINUTE_MS = 60_000;
const MOST_CALLERS = 10_000;

export interface DenialDeps extends AuditDeps {
  db: Database;
  auditQueue: EntryQueue;
}

interface Count {
  by: Caller;
  written: number;
  suppressed: number;
}

/** What a denial is written for. */
interface Denied {
  by: Caller;
  code: ErrorCode;
  operation: string | undefined;
  target: string;
  sessionId?: string | null;
}

export class Denials {
  readonly #deps: DenialDeps;
  #counts = new Map<string, Count>();
  #minute = 0;
  #firstOrg: string | undefined;

  constructor(deps: DenialDeps) {
    this.#deps = deps;
  }

  /** Writes the denial, or counts it. */
  add({ by, code, operation, target, sessionId }: Denied): void {
    this.summarise();
    const count = this.#countOf(by);
    const isKnown = by.actor.kind !== "anonymous";
    const most = isKnown ? LIMITS.auditDenialsPerMinute : LIMITS.auditUnknownDenialsPerMinute;
    if (count.written >= most) {
      count.suppressed += 1;
      return;
    }
    count.written += 1;
    const meta: AuditMeta = operation === undefined ? {} : { operation };
    const entry = {
      by,
      action: auditActionOf(operation),
      target,
      sessionId,
      outcome: "denied",
      code,
      meta,
    } as const;
    this.#deps.auditQueue.add(newRow(this.#deps.auditKey, entry));
  }

  /** Once a minute is over, writes how many of its denials have no entry. */
  summarise(now = Date.now()): void {
    const minute = Math.floor(now / MINUTE_MS);
    if (minute === this.#minute) return;
    this.#minute = minute;
    this.#writeCounts();
  }

  /** For shutdown: writes the counts of the minute that is not over. */
  stop(): void {
    this.#writeCounts();
  }

  /** The organisation of callers without a credential: the one that the service was set up with. */
  async firstOrg(): Promise<string | undefined> {
    this.#firstOrg ??= await findFirstOrg(this.#deps.db).catch(() => undefined);
    return this.#firstOrg;
  }

  #countOf(by: Caller): Count {
    const name = by.actor.kind === "anonymous" ? "anonymous" : by.actor.id;
    const known = this.#counts.get(name);
    if (known) return known;
    if (this.#counts.size >= MOST_CALLERS) this.#writeCounts();
    const count = { by, written: 0, suppressed: 0 };
    this.#counts.set(name, count);
    return count;
  }

  #writeCounts(): void {
    for (const { by, suppressed } of this.#counts.values()) {
      if (suppressed === 0) continue;
      this.#deps.auditQueue.add(
        newRow(this.#deps.auditKey, {
          by: { ...by, requestId: "", ip: "" },
          action: SUPPRESSED,
          target: by.actor.id,
          outcome: "denied",
          meta: { suppressed },
        }),
      );
    }
    this.#counts.clear();
  }
}

/** Writes entries by the answers of requests: denials, and the changes inside guests. */
export function auditAnswers(server: FastifyInstance, deps: DenialDeps & { denials: Denials }): void {
  server.addHook("onResponse", async (request, reply) => {
    if (request.refusal) await auditRefusal(deps, request, request.refusal);
    else auditGuestChange(deps, request, reply);
  });
}

async function auditRefusal(
  { denials }: { denials: Denials },
  request: FastifyRequest,
  error: ApiError,
): Promise<void> {
  if (!isDenial(request, error)) return;
  const by = await denied(denials, request, error);
  if (!by) return;
  // What a caller without a credential named may be another organisation's.
  const named = by.actor.kind === "anonymous" ? { target: "", sessionId: null } : targetOf(request);
  denials.add({ by, code: error.code, operation: operationOf(request), ...named });
}

function isDenial({ principal, is404, routeOptions }: FastifyRequest, error: ApiError): boolean {
  if (!DENIALS.has(error.code)) return false;
  if (error.code !== "not_found") return true;
  const isOfGuest = OF_A_GUEST.test(routeOptions.url ?? "") && !(error instanceof SessionNotFound);
  return principal !== null && !is404 && !isOfGuest;
}

async function denied(
  denials: Denials,
  request: FastifyRequest,
  error: ApiError,
): Promise<Caller | undefined> {
  if (request.principal) return callerOf(request.principal, request);
  const { id: requestId, ip } = request;
  if (error instanceof EndedCredential) {
    const { kind, id, orgId } = error.credential;
    return { orgId, actor: { kind, id }, requestId, ip };
  }
  const orgId = await denials.firstOrg();
  return orgId === undefined
    ? undefined
    : { orgId, actor: { kind: "anonymous", id: "anonymous" }, requestId, ip };
}

function auditGuestChange(
  { auditKey, auditQueue }: DenialDeps,
  request: FastifyRequest,
  { statusCode }: FastifyReply,
): void {
  const operation = operationOf(request);
  if (!request.principal || statusCode >= 300 || !isAuditedAfterAnswer(operation)) return;
  if (isRead(operation, request.body)) return;
  const by = callerOf(request.principal, request);
  auditQueue.add(newRow(auditKey, { by, action: auditActionOf(operation), ...targetOf(request) }));
}

/** `POST …/files` does by its `op` what other endpoints do, reads as well. */
function isRead(operation: string | undefined, body: unknown): boolean {
  return operation === "callFiles" && (body as { op?: unknown } | null)?.op !== "write";
}

/** What the path names: a session, or the first of its other parameters. At most as long as an id can be. */
function targetOf(request: FastifyRequest): { target: string; sessionId: string | null } {
  const params = (request.params ?? {}) as Record<string, string>;
  const target = (params.id ?? Object.values(params)[0] ?? "").slice(0, 128);
  return { target: target.replaceAll("\0", ""), sessionId: params.id === undefined ? null : target };
}

function operationOf({ routeOptions }: FastifyRequest): string | undefined {
  return (routeOptions.schema as { operationId?: string } | undefined)?.operationId;
}
