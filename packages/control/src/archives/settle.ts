/** Ends an attempt of an upload, with its event. */
import type { Packed } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { type Archive, findSpace } from "../archive-records/store.ts";
import type { Queries } from "../db/pool.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { ArchiveDeps } from "./deps.ts";
import { removalOf } from "./remove-objects.ts";
import { complete, deleteUnowned, fail, lockSession } from "./store.ts";

type End = { packed: Packed } | { error: string };

/** Nothing happens to an archive that another attempt has begun. One that nothing has any more is deleted. */
export async function endUpload(
  deps: Pick<ArchiveDeps, "db" | "jobs">,
  archive: Archive,
  end: End,
): Promise<void> {
  const isSettled = await deps.db.transaction().execute(async (tx) => {
    // Events of a session are numbered in the order of its moves.
    if (archive.session_id !== null) await lockSession(tx, archive.session_id);
    const isOurs = await write(tx, archive, end);
    if (isOurs) await emit(tx, archive, end);
    return isOurs;
  });
  crashPoint("archive.settled");
  // It was deleted, or replaced, or is begun by another process. A pause has made those before it needless.
  const spaces = await deleteUnowned(deps.db);
  const own = { org_id: archive.org_id, id: archive.space_id };
  // The chunks of an attempt that failed take a disk that is nearly full; another attempt is an hour away.
  const isLeft = !isSettled || ("error" in end && (await findSpace(deps.db, archive.space_id))?.is_local);
  for (const space of new Map([...spaces, ...(isLeft ? [own] : [])].map((one) => [one.id, one])).values())
    await deps.jobs.add("archive_removal", removalOf(space));
}

async function write(tx: Queries, archive: Archive, end: End): Promise<boolean> {
  if ("error" in end) return await fail(tx, archive, end.error);
  const { contents, chunks, differing_bytes, sent_bytes } = end.packed;
  return await complete(tx, archive, {
    contents: Buffer.from(contents, "hex"),
    chunks: Buffer.from(chunks.join(""), "hex"),
    differing_bytes,
    stored_bytes: sent_bytes,
  });
}

/** Baselines belong to no session, and what the warm tier has is no copy elsewhere that a caller could count on. */
async function emit(tx: Queries, archive: Archive, end: End): Promise<void> {
  if (archive.session_id === null || (await findSpace(tx, archive.space_id))?.is_local) return;
  const session = { ...archive, id: archive.session_id };
  const what = archive.kind === "checkpoint" ? { checkpoint_id: archive.snapshot_id } : {};
  const data = { archive_id: archive.id, ...what };
  if ("error" in end)
    await appendEvent(tx, eventOf(session, "archive.failed", { ...data, error: end.error }));
  else {
    const size_bytes = end.packed.sent_bytes;
    await appendEvent(tx, eventOf(session, "archive.complete", { ...data, size_bytes }));
  }
}
