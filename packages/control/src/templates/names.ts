import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { findVersions } from "./store.ts";

/** `<name>@<version>` by snapshot id, for those of the snapshots that are the caller's templates. */
export async function templateNames(
  db: Queries,
  scope: Scope,
  snapshotIds: string[],
): Promise<Map<string, string>> {
  const rows = await findVersions(db, scope, snapshotIds);
  return new Map(rows.map(({ id, name, version }) => [id, `${name}@${version}`]));
}
