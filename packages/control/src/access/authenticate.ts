/** Authenticates requests by their API key or scoped token. */
import { hash, timingSafeEqual } from "node:crypto";
import { API_KEY_PATTERN } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import { ApiError, EndedCredential } from "../errors/api-error.ts";
import { apiKeyDigest, isOperatorKey, isScopedToken, scopedTokenDigest, shownPartOf } from "./api-key.ts";
import { digestOfOperatorKey } from "./operator-key.ts";
import { OPERATOR, type Principal } from "./principal.ts";
import {
  findEndedKey,
  findEndedToken,
  findPrincipal,
  findTokenPrincipal,
  noteTokenUse,
  noteUse,
} from "./store.ts";

const BEARER = /^Bearer +(\S+)$/;
/** How long an accepted key is cached. A revoked key must stop working everywhere within five seconds. */
const REMEMBERED_MS = 2_000;
const REMEMBERED_KEYS = 10_000;
export const REFUSED_KEY = "Authorization: the API key is unknown, revoked or expired";

/**
 * Finds the principal of an Authorization header, the only place of credentials. Accepted keys are cached for
 * `REMEMBERED_MS`, under a hash, so that a busy caller does not cost a query per request.
 */
export class Authenticator {
  readonly #db: Database;
  readonly #pepper: Buffer;
  readonly #operatorDigest: Buffer;
  readonly #remembered = new Map<string, { principal: Principal; until: number }>();

  constructor({ db, pepper, operatorDigest }: { db: Database; pepper: Buffer; operatorDigest: Buffer }) {
    this.#db = db;
    this.#pepper = pepper;
    this.#operatorDigest = operatorDigest;
  }

  async authenticate(header: string | undefined): Promise<Principal> {
    const key = readKey(header);
    const name = hash("sha256", key, "base64");
    const known = this.#remembered.get(name);
    if (known && known.until > performance.now()) return known.principal;
    const principal = await this.#find(key);
    if (!principal) {
      this.#remembered.delete(name);
      throw await this.#refusal(key);
    }
    // Without the note only lists are older; the request does not wait for it.
    void this.#noteUse(principal, key).catch(() => {});
    if (this.#remembered.size >= REMEMBERED_KEYS) this.#remembered.clear();
    this.#remembered.set(name, { principal, until: performance.now() + restOf(principal) });
    return principal;
  }

  async #find(credential: string): Promise<Principal | undefined> {
    if (isOperatorKey(credential)) {
      const isOperators = timingSafeEqual(digestOfOperatorKey(credential), this.#operatorDigest);
      return isOperators ? OPERATOR : undefined;
    }
    return await (isScopedToken(credential)
      ? findTokenPrincipal(this.#db, scopedTokenDigest(this.#pepper, credential))
      : findPrincipal(this.#db, apiKeyDigest(this.#pepper, credential)));
  }

  /** The same answer for a credential that has ended and for one that never was. */
  async #refusal(credential: string): Promise<ApiError> {
    const ended = isScopedToken(credential)
      ? await findEndedToken(this.#db, scopedTokenDigest(this.#pepper, credential))
      : await findEndedKey(this.#db, apiKeyDigest(this.#pepper, credential));
    return ended ? new EndedCredential(REFUSED_KEY, ended) : new ApiError("unauthenticated", REFUSED_KEY);
  }

  async #noteUse({ kind, credentialId: id }: Principal, credential: string): Promise<void> {
    if (kind === "scoped_token") await noteTokenUse(this.#db, id);
    if (kind === "api_key") await noteUse(this.#db, { id, prefix: shownPartOf(credential) });
  }

  /** A key or token that was revoked by this process is refused from its next request on. */
  forget(credentialId: string): void {
    for (const [name, { principal }] of this.#remembered)
      if (principal.credentialId === credentialId) this.#remembered.delete(name);
  }
}

/** How long a credential is cached in milliseconds: not beyond its expiry. */
function restOf({ expiresAt }: Principal): number {
  return expiresAt ? Math.min(REMEMBERED_MS, expiresAt.getTime() - Date.now()) : REMEMBERED_MS;
}

function readKey(header: string | undefined): string {
  if (header === undefined) {
    throw new ApiError("unauthenticated", "Authorization: is required, as `Bearer <API key>`");
  }
  const key = BEARER.exec(header)?.[1];
  if (key && API_KEY_PATTERN.test(key)) return key;
  throw new ApiError(
    "unauthenticated",
    "Authorization: must be `Bearer <API key>` with a key that starts with viv_",
  );
}
