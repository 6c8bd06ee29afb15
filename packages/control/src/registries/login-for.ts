/** Finds and opens the credential with which an image of a registry is pulled. */
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { openSecret } from "./seal.ts";
import { findForRegistry } from "./store.ts";

export interface RegistryLogin {
  registry: string;
  username: string;
  password: string;
}

/**
 * Undefined: the pull is anonymous. A project's pull gets no credential of the organisation, whose images may not be meant for
 * that project, and the organisation's own pull none of a project.
 */
export async function loginFor(
  { db, keyring }: { db: Database; keyring: Keyring },
  scope: Scope,
  registry: string,
): Promise<RegistryLogin | undefined> {
  const row = await findForRegistry(db, scope, registry);
  return row && { registry, username: row.username, password: await openSecret(keyring, row) };
}
