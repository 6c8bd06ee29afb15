/** Deletes the credentials of a project that is deleted: nobody could see or use them any more. */
import { theSystem } from "../access/caller.ts";
import { type AuditDeps, appendEntry } from "../audit/append.ts";
import type { Queries } from "../db/pool.ts";
import { deleteCredentials } from "./store.ts";

export async function removeCredentialsOf(
  deps: AuditDeps,
  tx: Queries,
  project: { orgId: string; projectId: string },
): Promise<void> {
  for (const { id, name, registry_host } of await deleteCredentials(tx, project)) {
    const meta = { name, registry_host };
    const by = theSystem(project.orgId);
    await appendEntry(deps, tx, { by, action: "registry_credential.delete", target: id, meta });
  }
}
