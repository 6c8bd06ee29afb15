/** The periodic work on builds. Each part may run in several processes at once, and may be interrupted anywhere. */
import { isCreatedOn } from "../sessions/store.ts";
import { keepOnlyBuilds } from "../templates/build-store.ts";
import type { BuildDeps } from "./deps.ts";
import { ALL_BUILDS } from "./run-builds.ts";
import { hasWork } from "./store.ts";

/** Adds the job for the queue if it is lost, or has ended beside a build that came then. */
export async function addBuilds({ db, jobs }: Pick<BuildDeps, "db" | "jobs">): Promise<void> {
  if (await hasWork(db)) await jobs.add("template_builds", ALL_BUILDS);
}

/** Deletes builds on the node that have no row, or have failed: deletes that the node did not hear of. */
export async function deleteOrphanBuilds({
  db,
  nodes,
  node,
}: Pick<BuildDeps, "db" | "nodes" | "node">): Promise<void> {
  if ((await node.present())?.builds !== true) return;
  const ids = (await nodes.listBuilds()).map(({ build_id: id }) => id);
  const known = await keepOnlyBuilds(db, ids);
  for (const id of ids) if (!known.has(id) && !(await isCreatedOn(db, id))) await nodes.deleteBuild(id);
}
