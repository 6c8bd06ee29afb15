/** Ends builds, or puts them back into the queue, each with its event. */
import type { BuildError } from "@vivarium/contract/api";
import { LIMITS } from "@vivarium/contract/api";
import type { BuildFailureWord, BuildStatus } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Queries } from "../db/pool.ts";
import { appendEvent } from "../events/append.ts";
import { oneLine } from "../http/render-error.ts";
import type { BuildRow } from "../templates/build-store.ts";
import { keepImage } from "../templates/keep.ts";
import type { BuildDeps } from "./deps.ts";
import { endBuild, putBack } from "./store.ts";

type Build = Pick<BuildRow, "id" | "org_id" | "project_id" | "name" | "version">;

/** Wait before the next attempt. */
const PAUSE_MS = 5_000;
/** Wait for a registry that does not say for how long. */
const RATE_LIMITED_MS = 60_000;
/** A registry may not keep a build in the queue for longer. */
const RATE_LIMITED_MOST_MS = 3_600_000;
/** Nor with many answers: a build of this age fails, since the places of the queue are few, and a hostile registry is patient. */
const RATE_LIMITED_AGE_MS = 24 * 3_600_000;

/** The words of failures that say nothing of the image. */
const OWN_FAULTS: Partial<Record<BuildFailureWord, BuildError>> = {
  rate_limited: "internal",
  interrupted: "internal",
};

export async function emitBuilding(tx: Queries, build: Build): Promise<void> {
  await emit(tx, "template.building", build);
}

/** Makes the version that the build was for. */
export async function keepBuilt(deps: BuildDeps, build: BuildRow, status: BuildStatus): Promise<void> {
  const { image, sizes } = status;
  if (!image || !sizes?.length) throw new Error(`the node does not say what build ${build.id} has made`);
  const log = await logOf(deps, build);
  await deps.db.transaction().execute(async (tx) => {
    if (!(await endBuild(tx, build.id, { error: null, log }))) return;
    await keepImage(tx, build, { image: image.reference, sizes });
    await emit(tx, "template.ready", build);
  });
  crashPoint("build.kept");
}

export async function settleFailure(
  deps: BuildDeps,
  build: BuildRow,
  { failure }: Pick<BuildStatus, "failure">,
): Promise<void> {
  const { word, message, is_transient: mayPass, retry_after_ms: afterMs } = failure ?? UNKNOWN;
  const isOld = Date.now() - build.created_at.getTime() > RATE_LIMITED_AGE_MS;
  if (word === "rate_limited" && !isOld) {
    const waitMs = Math.min(afterMs ?? RATE_LIMITED_MS, RATE_LIMITED_MOST_MS);
    return await putBack(deps.db, build.id, { afterMs: waitMs, isAttempt: false });
  }
  if (word !== "rate_limited" && mayPass && build.attempts < LIMITS.templateBuildAttempts)
    return await putBack(deps.db, build.id, { afterMs: PAUSE_MS, isAttempt: true });
  await failBuild(deps, build, `${OWN_FAULTS[word] ?? word}: ${message}`);
}

const UNKNOWN = {
  word: "internal" as const,
  message: "the node does not say why",
  is_transient: false,
  retry_after_ms: undefined,
};

/** `error` begins with its word and a colon. */
export async function failBuild(deps: BuildDeps, build: BuildRow, error: string): Promise<void> {
  const log = await logOf(deps, build);
  const line = oneLine(error, LIMITS.errorMessageChars);
  await deps.db.transaction().execute(async (tx) => {
    if (await endBuild(tx, build.id, { error: line, log })) await emit(tx, "template.failed", build, line);
  });
  crashPoint("build.failed");
  // Nothing of it is of use any more. The sweep deletes what is left.
  await deps.nodes.deleteBuild(build.id).catch(() => undefined);
}

async function logOf({ nodes, log }: BuildDeps, { id }: Build) {
  const lines = await nodes.readBuildLog(id).catch((err: unknown) => {
    log.warn({ err, build_id: id }, "the log of a build could not be read");
    return undefined;
  });
  return lines ?? [];
}

async function emit(
  tx: Queries,
  type: "template.building" | "template.ready" | "template.failed",
  { org_id: orgId, project_id: projectId, name, version }: Build,
  buildError?: string,
): Promise<void> {
  const data = {
    name,
    version: String(version),
    ...(buildError !== undefined && { build_error: buildError }),
  };
  await appendEvent(tx, { type, orgId, projectId, data });
}
