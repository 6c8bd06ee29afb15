/** Turns a volume's row into its public record. Unset optional fields are left out. */
import type { Volume } from "@vivarium/contract/api";
import type { VolumeRow } from "./store.ts";

export function toVolume(row: VolumeRow): Volume {
  return {
    id: row.id,
    size_gb: row.size_gb,
    created_at: row.created_at.toISOString(),
    attached: row.session_id !== null,
    ...(row.session_id !== null && { session_id: row.session_id }),
    ...(row.last_saved_at && { last_saved_at: row.last_saved_at.toISOString() }),
  };
}
