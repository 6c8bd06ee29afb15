/** The periodic work on archives. Each part may run in several processes at once, and may be interrupted anywhere. */
import { crashPoint } from "@vivarium/kit/crash-point";
import type { ArchiveDeps } from "./deps.ts";
import { removalOf } from "./remove-objects.ts";
import { endUpload } from "./settle.ts";
import {
  deleteEmptySpaces,
  deleteUnowned,
  listPackable,
  listRetriable,
  listStranded,
  retry,
} from "./store.ts";

type SweepDeps = Pick<ArchiveDeps, "db" | "jobs" | "hasArchives" | "hasWarmTier">;

/** Adds a job for every archive that can be packed and has none. */
export async function addUploads(deps: SweepDeps): Promise<void> {
  if (!deps.hasArchives && !deps.hasWarmTier) return;
  for (const archive of await listStranded(deps.db, deps.hasArchives))
    await endUpload(deps, archive, { error: "the state that it differs from could not be stored" });
  for (const id of await listPackable(deps.db, deps.hasArchives))
    if ((await deps.jobs.add("archive_upload", id)) === "full") return;
}

/** Tries failed archives again, once their time has come. */
export async function retryFailed({ db, hasArchives, hasWarmTier }: SweepDeps): Promise<void> {
  if (hasArchives || hasWarmTier) for (const id of await listRetriable(db, hasArchives)) await retry(db, id);
}

/** Destroys the keys of archives that nothing has or needs, and adds the removal of their objects. */
export async function deleteArchives(deps: SweepDeps): Promise<void> {
  // An archive that differs from another one is deleted first; its base may be needless then.
  const left = new Map<string, Parameters<typeof removalOf>[0]>();
  for (;;) {
    const deleted = await deleteUnowned(deps.db);
    if (deleted.length === 0) break;
    for (const space of deleted) left.set(space.id, space);
  }
  for (const space of await deleteEmptySpaces(deps.db)) left.set(space.id, space);
  const spaces = [...left.values()];
  if (spaces.length > 0) crashPoint("archive.spaces_deleted");
  for (const space of spaces) await deps.jobs.add("archive_removal", removalOf(space));
}
