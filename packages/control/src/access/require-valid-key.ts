/** Checks a request's key once more, before it makes something that outlives the request. */
import type { Queries } from "../db/pool.ts";
import { EndedCredential } from "../errors/api-error.ts";
import { REFUSED_KEY } from "./authenticate.ts";
import type { Principal } from "./principal.ts";
import { findValidKey } from "./store.ts";

/**
 * Throws if the key is revoked or expired by now: this process may still have it in its cache. Returns its expiry. The caller
 * has locked the organisation's row (`lockOrg`), as every revocation of a key does, so that none commits after the check
 * and before the caller does.
 */
export async function requireValidKey(
  tx: Queries,
  { keyId, orgId }: Principal,
): Promise<{ expiresAt: Date | null }> {
  const key = await findValidKey(tx, keyId);
  if (!key) throw new EndedCredential(REFUSED_KEY, { kind: "api_key", id: keyId, orgId });
  return { expiresAt: key.expires_at };
}
