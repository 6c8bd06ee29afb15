/**
 * Lets the node make templates of images, one after the other: the handler of a background job. It may die anywhere. The next
 * process finds the build that it followed by its row.
 */
import { crashPoint } from "@vivarium/kit/crash-point";
import { NodeError } from "../fleet/node-error.ts";
import type { BuildDeps } from "./deps.ts";
import { followBuild } from "./follow-build.ts";
import { emitBuilding } from "./settle.ts";
import { releaseClaim, takeNext } from "./store.ts";

/** The input of the one job for all builds: its handler takes them in the order of the queue. */
export const ALL_BUILDS = "all";

export async function runBuilds(deps: BuildDeps, _all: string, stopping: AbortSignal): Promise<void> {
  while (!stopping.aborted) {
    const build = await deps.db.transaction().execute(async (tx) => {
      const next = await takeNext(tx);
      if (next?.isFirst) await emitBuilding(tx, next);
      return next;
    });
    if (!build) return;
    crashPoint("build.claimed");
    try {
      await followBuild(deps, build, stopping);
    } catch (error) {
      await releaseClaim(deps.db, build.id);
      // The next process continues.
      if (stopping.aborted) return;
      if (!(error instanceof NodeError)) throw error;
      // The node is away, or was: the sweep adds the job again.
      deps.log.warn(
        { reason: error.message, build_id: build.id },
        "a build could not be followed; will retry",
      );
      return;
    }
  }
}
