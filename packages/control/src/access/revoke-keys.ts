import type { Queries } from "../db/pool.ts";

/** Revokes the keys that are bound to a project, and returns their ids. */
export async function revokeKeysOf(db: Queries, projectId: string): Promise<string[]> {
  const rows = await db
    .updateTable("api_keys")
    .set({ revoked_at: new Date() })
    .where("scoped_project_id", "=", projectId)
    .where("revoked_at", "is", null)
    .returning("id")
    .execute();
  return rows.map(({ id }) => id);
}
