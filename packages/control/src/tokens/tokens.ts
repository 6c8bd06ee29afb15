/** Mints, lists and revokes the scoped tokens of a session; none of it wakes the session (docs/spec/access.md). */
import {
  CAPABILITIES,
  LIMITS,
  type TokenCreate,
  type TokenCreated,
  type TokenRecord,
} from "@vivarium/contract/api";
import type { z } from "zod";
import { newScopedToken, scopedTokenDigest } from "../access/api-key.ts";
import type { Authenticator } from "../access/authenticate.ts";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { requireValidKey } from "../access/require-valid-key.ts";
import { lockOrg } from "../access/store.ts";
import { type AuditDeps, appendEntry } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { OpenRequests } from "../http/open-requests.ts";
import { invalidField } from "../http/validation.ts";
import { getReadable, getSession } from "../sessions/get.ts";
import type { SessionRow } from "../sessions/store.ts";
import { insertToken, listTokens, setRevoked, type TokenRow } from "./store.ts";

export interface TokenDeps extends AuditDeps {
  db: Database;
  pepper: Buffer;
  authenticator: Authenticator;
  openRequests: OpenRequests;
}

const HASH = /^[0-9a-f]{64}$/;

/** Returns the record with the token, which is shown this once. */
export async function mintToken(
  deps: Pick<TokenDeps, "db" | "pepper" | "auditKey">,
  principal: Principal,
  { id, body, by }: { id: string; body: z.output<typeof TokenCreate>; by: Caller },
): Promise<TokenCreated> {
  requireUnrestricted(principal);
  const { db, pepper } = deps;
  const token = newScopedToken();
  const row = await db.transaction().execute(async (tx) => {
    // The organisation's row is locked, so that tokens are counted by one mint at a time.
    await lockOrg(tx, principal.orgId);
    const own = await requireValidKey(tx, principal);
    const session = await getReadable(tx, scopeOf(principal), id, ["failed", "lifetime_expired"]);
    checkTtl(session, body.ttl_seconds);
    const expiresAt = new Date(Date.now() + body.ttl_seconds * 1000);
    checkOwnExpiry(own, expiresAt);
    if ((await listTokens(tx, id)).length >= LIMITS.tokensPerSession)
      throw new ApiError(
        "conflict",
        `the session has ${LIMITS.tokensPerSession} scoped tokens: revoke one, or wait until one expires`,
      );
    const asked = body.capabilities?.length ? body.capabilities : CAPABILITIES;
    const made = await insertToken(tx, {
      digest: scopedTokenDigest(pepper, token),
      org_id: principal.orgId,
      session_id: id,
      key_id: principal.keyId,
      capabilities: CAPABILITIES.filter((one) => asked.includes(one)),
      expires_at: expiresAt,
    });
    const { hash, capabilities, expires_at } = toToken(made);
    const meta = { capabilities, expires_at };
    await appendEntry(deps, tx, { by, action: "token.mint", target: hash, sessionId: id, meta });
    return made;
  });
  const { last_used_at: _never, ...record } = toToken(row);
  return { token, ...record };
}

export async function listSessionTokens(
  db: Database,
  principal: Principal,
  id: string,
): Promise<TokenRecord[]> {
  requireUnrestricted(principal);
  await getSession(db, scopeOf(principal), id);
  return (await listTokens(db, id)).map(toToken);
}

/** A hash that is unknown, of another session, or of a token that has ended gives one and the same answer. */
export async function revokeToken(
  deps: TokenDeps,
  principal: Principal,
  { id, hash, by }: { id: string; hash: string; by: Caller },
): Promise<void> {
  const { db, authenticator, openRequests } = deps;
  requireUnrestricted(principal);
  await getSession(db, scopeOf(principal), id);
  const digest = Buffer.from(HASH.test(hash) ? hash : "", "hex");
  await db.transaction().execute(async (tx) => {
    if (!(await setRevoked(tx, { sessionId: id, digest })))
      throw new ApiError("not_found", "token not found: the session has no scoped token with this hash");
    await appendEntry(deps, tx, { by, action: "token.revoke", target: hash, sessionId: id });
  });
  authenticator.forget(hash);
  openRequests.endOf(hash);
}

function requireUnrestricted({ kind, scopedProjectId }: Principal): void {
  if (kind === "api_key" && scopedProjectId === null) return;
  throw new ApiError("forbidden", "scoped tokens are managed with an API key of the whole organisation");
}

function checkTtl(
  { created_at: createdAt, max_lifetime_ms: lifetimeMs }: SessionRow,
  ttlSeconds: number,
): void {
  if (lifetimeMs === null) return;
  const leftS = Math.max(0, Math.floor((createdAt.getTime() + lifetimeMs - Date.now()) / 1000));
  if (ttlSeconds > leftS)
    throw invalidField(
      "ttl_seconds",
      `must be at most ${leftS}, the session's remaining lifetime`,
      ttlSeconds,
    );
}

/** A key that expires mints no token that outlives it, as it makes no such key. */
function checkOwnExpiry({ expiresAt: own }: { expiresAt: Date | null }, expiresAt: Date): void {
  if (own && expiresAt > own)
    throw new ApiError("forbidden", `ttl_seconds: this API key expires at ${own.toISOString()} itself`);
}

function toToken(row: TokenRow): TokenRecord {
  return {
    hash: row.digest.toString("hex"),
    capabilities: row.capabilities,
    created_at: row.created_at.toISOString(),
    expires_at: row.expires_at.toISOString(),
    ...(row.last_used_at && { last_used_at: row.last_used_at.toISOString() }),
  };
}
