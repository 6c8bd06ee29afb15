/** Makes an API key, which can do no more than the key that it is made with (docs/spec/access.md). */
import { type ApiKeyCreate, type ApiKeyCreated, ID_PREFIXES, LIMITS } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { z } from "zod";
import { apiKeyDigest, newApiKey, shownPartOf } from "../access/api-key.ts";
import type { Caller } from "../access/caller.ts";
import type { Principal } from "../access/principal.ts";
import { requireValidKey } from "../access/require-valid-key.ts";
import { resolveBinding } from "../access/resolve-project.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { invalidField } from "../http/validation.ts";
import type { KeyDeps } from "./deps.ts";
import { toKeyRecord } from "./record.ts";
import { countKeys, insertKey } from "./store.ts";

type Body = z.output<typeof ApiKeyCreate>;

/** Returns the record with the key, which is shown this once. */
export async function createKey(
  deps: Pick<KeyDeps, "db" | "pepper" | "auditKey">,
  principal: Principal,
  { body, by }: { body: Body; by: Caller },
): Promise<ApiKeyCreated> {
  const { db, pepper } = deps;
  const key = newApiKey();
  const row = await db.transaction().execute(async (tx) => {
    // The organisation's row is locked, so that keys are counted by one create at a time.
    await lockOrg(tx, principal.orgId);
    const own = await requireValidKey(tx, principal);
    if ((await countKeys(tx, principal.orgId)) >= LIMITS.keysPerOrg)
      throw new ApiError("conflict", `the organisation has ${LIMITS.keysPerOrg} keys: revoke one first`);
    const made = await insertKey(tx, {
      id: ID_PREFIXES.apiKey + randomId(),
      org_id: principal.orgId,
      name: body.name,
      default_project_id: principal.defaultProjectId,
      scoped_project_id: await resolveBinding(tx, principal, body.project_id),
      role: body.role ?? "full",
      digest: apiKeyDigest(pepper, key),
      prefix: shownPartOf(key),
      concurrent_sessions: ceilingOf(principal, body),
      expires_at: expiryOf(own, body),
    });
    const { name, role, project_id, expires_at } = toKeyRecord(made);
    const meta = { name, role, project_id, expires_at };
    await appendEntry(deps, tx, { by, action: "key.create", target: made.id, meta });
    return made;
  });
  return { ...toKeyRecord(row), key };
}

function ceilingOf(
  { concurrentSessions: own }: Principal,
  { concurrent_sessions: asked }: Body,
): number | null {
  if (own !== null && asked != null && asked > own)
    throw new ApiError(
      "forbidden",
      `concurrent_sessions: this API key may have ${own} itself, and give no more`,
    );
  return asked ?? own;
}

/** A key that expires makes none that outlives it. */
function expiryOf({ expiresAt: own }: { expiresAt: Date | null }, { expires_at: asked }: Body): Date | null {
  if (asked == null) return own;
  const expiry = new Date(asked);
  if (expiry <= new Date()) throw invalidField("expires_at", "must be in the future", asked);
  if (own && expiry > own)
    throw new ApiError("forbidden", `expires_at: this API key expires at ${own.toISOString()} itself`);
  return expiry;
}
