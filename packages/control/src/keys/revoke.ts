/** Revokes an API key: it is refused from then on, and what it has open is cut (docs/spec/access.md). */
import { KEY_ID_PATTERN } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import type { OpenRequest } from "../http/open-requests.ts";
import type { KeyDeps } from "./deps.ts";
import { findKey, hasOtherManager, setRevoked } from "./store.ts";

/** A key that is revoked already stays so. `own`: the request that asks, which is answered though its key ends. */
export async function revokeKey(
  deps: KeyDeps,
  principal: Principal,
  { id, own, by }: { id: string; own?: OpenRequest | undefined; by: Caller },
): Promise<void> {
  const { db, authenticator, openRequests } = deps;
  await db.transaction().execute(async (tx) => {
    // Two revocations at once must not each take the key of the other for the one that stays.
    await lockOrg(tx, principal.orgId);
    const key = KEY_ID_PATTERN.test(id) ? await findKey(tx, scopeOf(principal), id) : undefined;
    if (!key) throw new ApiError("not_found", "key not found: no API key that you may see has this id");
    if (key.revoked_at) return;
    const isManager = key.role === "full" && key.scoped_project_id === null && key.expires_at === null;
    if (isManager && !(await hasOtherManager(tx, key)))
      throw new ApiError(
        "conflict",
        "this is the last key that can manage the organisation's keys and does not expire: make another one first",
      );
    await setRevoked(tx, id);
    await appendEntry(deps, tx, { by, action: "key.revoke", target: id, meta: { name: key.name } });
  });
  authenticator.forget(id);
  openRequests.endOf(id, own);
}
