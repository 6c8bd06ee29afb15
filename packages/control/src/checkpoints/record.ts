/** Turns a checkpoint's row into its public record. Unset optional fields are left out. */
import type { Checkpoint } from "@vivarium/contract/api";
import type { CheckpointRow } from "./store.ts";

export function toCheckpoint(row: CheckpointRow): Checkpoint {
  return {
    checkpoint_id: row.id,
    parent_session_id: row.session_id,
    session_id: row.session_id,
    ...(row.name !== null && { name: row.name }),
    ...(row.labels && { labels: row.labels }),
    size_bytes: row.size_bytes,
    created_at: row.created_at.toISOString(),
  };
}
