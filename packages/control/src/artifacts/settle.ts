/** Ends a capture, with its event. */
import { crashPoint } from "@vivarium/kit/crash-point";
import { appendEvent, eventOf } from "../events/append.ts";
import type { ArtifactDeps } from "./deps.ts";
import { removalOf } from "./remove-objects.ts";
import { type ArtifactRow, deleteFiles, listFiles, settle } from "./store.ts";

type End = { outcome: "ready" } | { outcome: "failed"; error: string };

/** Nothing happens to an artifact that was settled meanwhile. What was stored for one that was deleted is removed. */
export async function endCapture(
  deps: Pick<ArtifactDeps, "db" | "jobs">,
  artifact: ArtifactRow,
  end: End,
): Promise<void> {
  const settled = await deps.db.transaction().execute(async (tx) => {
    const row = await settle(tx, artifact.id, end);
    if (!row) return undefined;
    const files = await listFiles(tx, [row.id]);
    if (end.outcome === "failed") await deleteFiles(tx, row.id);
    const session = { ...row, id: row.session_id };
    await appendEvent(tx, eventOf(session, `artifact.${end.outcome}`, dataOf(row.id, end, files)));
    return row;
  });
  crashPoint("artifact.settled");
  if (settled?.state !== "ready") await deps.jobs.add("artifact_removal", removalOf(artifact));
}

function dataOf(id: string, end: End, files: readonly { size_bytes: number }[]): Record<string, unknown> {
  if (end.outcome === "failed") return { artifact_id: id, error: end.error };
  return { artifact_id: id, size_bytes: files.reduce((sum, file) => sum + file.size_bytes, 0) };
}
