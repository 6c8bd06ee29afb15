/** Handles the Idempotency-Key of creates. Each key has a row, written in the transaction that makes the session. */
import { IDEMPOTENCY_KEY_PATTERN, LIMITS } from "@vivarium/contract/api";
import { keyedDigest } from "../access/pepper.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import { deleteIdempotencyKey, findIdempotencyKey, tryLockKey } from "./idempotency-store.ts";

export function readIdempotencyKey(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header === "string" && IDEMPOTENCY_KEY_PATTERN.test(header)) return header;
  throw invalidField(
    "Idempotency-Key",
    `must be 1 to ${LIMITS.idempotencyKeyChars} characters of A-Z a-z 0-9 _ . : = + / -`,
    header,
  );
}

/** Digest of a body. Ignores the order of keys, and treats null fields as absent. */
export function bodyDigest(pepper: Buffer, body: object): Buffer {
  return keyedDigest(pepper, "create-body", canonicalJson(body));
}

/**
 * The session that this key made before, if any. Locks the key for the rest of the transaction: a duplicate that
 * arrives meanwhile is refused, and a transaction that fails releases the key.
 */
export async function claimIdempotencyKey(
  tx: Queries,
  request: { orgId: string; key: string; bodyDigest: Buffer },
): Promise<string | undefined> {
  if (!(await tryLockKey(tx, request))) {
    throw new ApiError(
      "idempotency_key_in_progress",
      "Idempotency-Key: a request with this key is still in progress",
    );
  }
  const known = await findIdempotencyKey(tx, request);
  if (!known) return undefined;
  if (known.isExpired) {
    await deleteIdempotencyKey(tx, request);
    return undefined;
  }
  if (known.bodyDigest.equals(request.bodyDigest)) return known.sessionId;
  throw new ApiError(
    "conflict",
    "Idempotency-Key: was used with another body; use a new key for another session",
  );
}

function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, inner: unknown) => {
    if (typeof inner !== "object" || inner === null || Array.isArray(inner)) return inner;
    const entries = Object.entries(inner).filter(([, field]) => field !== null && field !== undefined);
    return Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1)));
  });
}
