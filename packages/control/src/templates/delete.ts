import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { deleteArchiveOf } from "../archive-records/remove.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvents, type NewEvent } from "../events/append.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { releaseOrigin } from "../moves/release-origin.ts";
import { isCreatedOn } from "../sessions/store.ts";
import { removeBuilds } from "./build-store.ts";
import { templateNotFound } from "./get.ts";
import { isOfficial } from "./official.ts";
import { readReference } from "./reference.ts";
import { removeVersions } from "./store.ts";

/** Deletes a template of the caller's, or one of its versions; its build ends. Sessions that were started from it are not affected. */
export async function deleteTemplate(
  deps: Pick<MoveDeps, "db" | "nodes" | "auditKey" | "log"> & { node: NodeState },
  scope: Scope,
  { text, by }: { text: string; by: Caller },
): Promise<void> {
  const reference = readReference(text);
  if (!reference) throw templateNotFound();
  const { name, number: version } = reference;
  if (isOfficial(await deps.node.current(), name)) {
    throw new ApiError(
      "forbidden",
      `${name} is an official template; only templates of your own can be deleted`,
    );
  }
  // Versions of saved templates are numbers, so any other text matches nothing.
  if (reference.version !== undefined && version === undefined) throw templateNotFound();
  const gone = await deps.db.transaction().execute(async (tx) => {
    const saved = await removeVersions(tx, scope, { name, version });
    for (const { id } of saved) await deleteArchiveOf(tx, id);
    const built = await removeBuilds(tx, scope, { name, version });
    const removed = new Map([...saved, ...built].map((row) => [row.id, row]));
    await appendEvents(tx, [...removed.values()].map(deletedOf));
    const meta = version === undefined ? {} : { version: String(version) };
    if (removed.size > 0) await appendEntry(deps, tx, { by, action: "template.delete", target: name, meta });
    const ofImages = new Set(built.map(({ id }) => id));
    return { count: removed.size, ofImages, saved: saved.filter(({ id }) => !ofImages.has(id)) };
  });
  if (gone.count === 0) throw templateNotFound();
  crashPoint("template_delete.commit");
  for (const { id } of gone.saved) await releaseOrigin(deps, id);
  for (const id of gone.ofImages) await releaseBuild(deps, id);
}

/** If a session is being started from it, or the node does not answer, the sweep deletes the build later. */
async function releaseBuild(
  { db, nodes, log }: Pick<MoveDeps, "db" | "nodes" | "log">,
  id: string,
): Promise<void> {
  try {
    if (!(await isCreatedOn(db, id))) await nodes.deleteBuild(id);
  } catch (err) {
    log.warn({ err, build_id: id }, "a build could not be deleted yet; the sweep tries again");
  }
}

interface Deleted {
  org_id: string;
  project_id: string | null;
  name: string;
  version: number;
}

/** The event names no session, because a template outlives the session that it was saved from. */
function deletedOf({ org_id, project_id, name, version }: Deleted): NewEvent {
  const data = { name, version: String(version) };
  return { type: "template.deleted", orgId: org_id, projectId: project_id, data };
}
