import { API_KEY_PATTERN } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../http/api-error.ts";
import { apiKeyDigest } from "./api-key.ts";
import type { Principal } from "./principal.ts";
import { findPrincipal } from "./store.ts";

const BEARER = /^Bearer +(\S+)$/i;

/** Turns the Authorization header into a principal. No credential is read from anywhere else. */
export async function authenticate(
  { db, pepper }: { db: Database; pepper: Buffer },
  header: string | undefined,
): Promise<Principal> {
  if (header === undefined) {
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  }
  const key = BEARER.exec(header)?.[1];
  if (!key || !API_KEY_PATTERN.test(key)) {
    throw new ApiError(
      "unauthenticated",
      "Authorization: must be `Bearer <API key>` with a key that starts with viv_",
    );
  }
  const principal = await findPrincipal(db, apiKeyDigest(pepper, key));
  if (!principal)
    throw new ApiError("unauthenticated", "Authorization: the API key is unknown, revoked or expired");
  return principal;
}
