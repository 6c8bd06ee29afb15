/** SQL that reads, of all organisations, what rows say is stored on the node and in the object store. */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";

export interface Stored {
  kind: "session" | "checkpoint" | "template" | "volume" | "artifact" | "archive";
  id: string;
  org_id: string;
  name: string | null;
  state: string | null;
  /** The session that it is of, or that has it. */
  session_id: string | null;
  /** The saved state on the node. */
  snapshot_id: string | null;
  /** Size of a volume, and of the files of an artifact. */
  size_bytes: number | null;
}

export async function listStored(db: Queries): Promise<Stored[]> {
  const { rows } = await sql<Stored>`
    select 'session' as kind, id, org_id, name, state, id as session_id, snapshot_id, null::bigint as size_bytes
      from sessions where state <> 'destroyed' and (state <> 'failed' or snapshot_id is not null)
    union all
    select 'checkpoint', id, org_id, name, null, session_id, id, null from checkpoints
    union all
    select 'template', id, org_id, name || '@' || version, null, session_id, id, null from templates
    union all
    select 'volume', id, org_id, null, state, session_id, null, size_gb::bigint * 1024 * 1024 * 1024 from volumes
    union all
    select 'artifact', id, org_id, null, state, session_id, null,
        (select coalesce(sum(size_bytes), 0)::bigint from artifact_files where artifact_id = artifacts.id)
      from artifacts
    union all
    select 'archive', id, org_id, owner, null, nullif(owner, 'baselines'), null, null
      from (select id, org_id, regexp_replace(owner, '^local:', '') as owner from archive_spaces) as spaces
    order by kind, id`.execute(db);
  return rows;
}
