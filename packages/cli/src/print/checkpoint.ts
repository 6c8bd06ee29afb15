/** Renders checkpoints as a table, and one checkpoint as fields. */
import type { Checkpoint } from "@vivarium/sdk";
import { formatBytes } from "./bytes.ts";
import { noPaint, type Paint } from "./paint.ts";
import { renderPairs } from "./pairs.ts";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

export function renderCheckpoints(checkpoints: Checkpoint[], now: Date, paint: Paint = noPaint): string {
  if (checkpoints.length === 0) return "No checkpoints. Make one with: viv checkpoint create SESSION";
  const rows = checkpoints.map((checkpoint) => [
    checkpoint.checkpoint_id,
    checkpoint.parent_session_id,
    formatBytes(checkpoint.size_bytes),
    formatAge(now.getTime() - Date.parse(checkpoint.created_at)),
    checkpoint.name ?? "",
  ]);
  return renderTable(["ID", "SESSION", "SIZE", "AGE", "NAME"], rows, (padded, { row }) =>
    row === 0 ? paint("dim", padded) : padded,
  );
}

export function renderCheckpoint(checkpoint: Checkpoint): string {
  return renderFields([
    ["id", checkpoint.checkpoint_id],
    ["session", checkpoint.parent_session_id],
    ["name", checkpoint.name],
    ["size", formatBytes(checkpoint.size_bytes)],
    ["created", checkpoint.created_at],
    ["labels", renderPairs(checkpoint.labels)],
  ]);
}
