/** Deletes the credentials of a name that the caller sees, with the keys that open them. */
import { REGISTRY_CREDENTIAL_NAME } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { RegistryDeps } from "./deps.ts";
import { deleteCredentials } from "./store.ts";

/** Without one, nothing happens. A key of the whole organisation deletes those of its projects, too. */
export async function deleteCredential(
  deps: Pick<RegistryDeps, "db" | "auditKey">,
  scope: Scope,
  { name, by }: { name: string; by: Caller },
): Promise<void> {
  if (!REGISTRY_CREDENTIAL_NAME.test(name)) return;
  await deps.db.transaction().execute(async (tx) => {
    for (const { id, registry_host } of await deleteCredentials(tx, scope, name)) {
      const meta = { name, registry_host };
      await appendEntry(deps, tx, { by, action: "registry_credential.delete", target: id, meta });
    }
  });
}
