/** The periodic work on artifacts. Each part may run in several processes at once, and may be interrupted anywhere. */
import { appendEvents, eventOf } from "../events/append.ts";
import type { ArtifactDeps } from "./deps.ts";
import { removalOf } from "./remove-objects.ts";
import { endCapture } from "./settle.ts";
import { listOverdue, listPending, lockExpired, removeArtifact } from "./store.ts";

type SweepDeps = Pick<ArtifactDeps, "db" | "jobs">;

/** Adds a job for every capture that has none: it was a teardown's, or was lost, or found the queue full. */
export async function addCaptures(deps: SweepDeps): Promise<void> {
  for (const { id } of await listPending(deps.db))
    if ((await deps.jobs.add("artifact_capture", id)) === "full") return;
}

/** Ends captures whose time is over. */
export async function failOverdue(deps: SweepDeps): Promise<void> {
  for (const artifact of await listOverdue(deps.db))
    await endCapture(deps, artifact, { outcome: "failed", error: "the capture took longer than it may" });
}

export async function expireArtifacts(deps: SweepDeps): Promise<void> {
  const gone = await deps.db.transaction().execute(async (tx) => {
    const expired = await lockExpired(tx);
    for (const { id } of expired) await removeArtifact(tx, id);
    const events = expired.map((row) =>
      eventOf({ ...row, id: row.session_id }, "artifact.expired", { artifact_id: row.id }),
    );
    await appendEvents(tx, events);
    return expired;
  });
  for (const row of gone) await deps.jobs.add("artifact_removal", removalOf(row));
}
