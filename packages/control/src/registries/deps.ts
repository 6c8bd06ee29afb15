/** Dependencies of credentials for registries. */
import type { Log } from "@vivarium/kit/log";
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import type { Keyring } from "../secrets/keyring.ts";

export interface RegistryDeps extends AuditDeps {
  db: Database;
  keyring: Keyring;
  log: Log;
}
