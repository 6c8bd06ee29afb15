/** Stores a credential for a registry. It is not tried there: an import that it does not open says so. */
import {
  ID_PREFIXES,
  LIMITS,
  type RegistryCredential,
  type RegistryCredentialCreate,
} from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import type { Principal } from "../access/principal.ts";
import { requireValidKey } from "../access/require-valid-key.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import type { RegistryDeps } from "./deps.ts";
import { toCredential } from "./record.ts";
import { readRegistryHost } from "./registry-host.ts";
import { sealSecret } from "./seal.ts";
import { countCredentials, insertCredential } from "./store.ts";

const { registryCredentialsPerOrg: MOST } = LIMITS;

/** A key that is bound to a project makes a credential of that project. */
export async function createCredential(
  deps: RegistryDeps,
  principal: Principal,
  {
    body: { name, username, secret, registry_host: host },
    by,
  }: { body: RegistryCredentialCreate; by: Caller },
): Promise<RegistryCredential> {
  const { orgId, scopedProjectId } = principal;
  const holder = {
    id: ID_PREFIXES.registryCredential + randomId(),
    org_id: orgId,
    registry_host: readRegistryHost(host),
    username,
  };
  const sealed = sealSecret(deps.keyring, holder, secret);
  const row = await deps.db.transaction().execute(async (tx) => {
    await lockOrg(tx, orgId);
    await requireValidKey(tx, principal);
    if ((await countCredentials(tx, orgId)) >= MOST)
      throw new ApiError(
        "conflict",
        `the organisation has ${MOST} credentials for registries: delete one first`,
      );
    const made = await insertCredential(tx, { ...holder, project_id: scopedProjectId, name, ...sealed });
    if (made === "name_taken")
      throw new ApiError(
        "conflict",
        `name: another credential is called ${JSON.stringify(name)}; delete it first, or choose another name`,
      );
    const meta = { name, registry_host: holder.registry_host };
    await appendEntry(deps, tx, { by, action: "registry_credential.create", target: holder.id, meta });
    return made;
  });
  return toCredential(row, secret);
}
