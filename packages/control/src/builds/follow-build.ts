/** Follows one build on the node until it has ended, and notes in its row how far it is. */
import { type BuildProgress, LIMITS } from "@vivarium/contract/api";
import type { BuildStatus } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { ApiError } from "../errors/api-error.ts";
import { loginFor, type RegistryLogin } from "../registries/login-for.ts";
import type { BuildRow } from "../templates/build-store.ts";
import type { BuildDeps } from "./deps.ts";
import { failureOfSession, findLayout, keepAwake } from "./layout.ts";
import { failBuild, keepBuilt, settleFailure } from "./settle.ts";
import { beginAttempt, noteImage, noteProgress } from "./store.ts";

/** Interval of the looks at a build that runs. */
const LOOK_MS = 500;

export async function followBuild(deps: BuildDeps, build: BuildRow, stopping: AbortSignal): Promise<void> {
  const release = keepAwake(deps, build);
  try {
    await follow(deps, build, { stopping, onImage: release });
  } finally {
    release();
  }
}

interface Following {
  stopping: AbortSignal;
  /** Called once the node has all of the image. */
  onImage: () => void;
}

async function follow(deps: BuildDeps, build: BuildRow, { stopping, onImage }: Following): Promise<void> {
  const { db, nodes } = deps;
  const { id } = build;
  let status = await nodes.findBuild(id);
  await keepImage(db, build, status);
  // A build that another process began is followed, and not begun again.
  if (!status || status.state === "failed") {
    const begun = await begin(deps, build);
    if (!begun) return;
    status = begun;
  }
  const deadline = performance.now() + LIMITS.templateBuildMs;
  while (status.state === "queued" || status.state === "building") {
    await keepImage(db, build, status);
    if (status.stage !== undefined && status.stage !== "pull") onImage();
    if (!(await noteProgress(db, id, progressOf(status)))) return await nodes.deleteBuild(id);
    crashPoint("build.followed");
    if (performance.now() > deadline) {
      await nodes.deleteBuild(id);
      return await failBuild(deps, build, "build_timeout: the build took longer than it may");
    }
    await sleep(LOOK_MS, stopping);
    stopping.throwIfAborted();
    const next = await nodes.findBuild(id);
    // A node that was set up anew has forgotten it: the next process, or this one, begins it again.
    if (!next) throw new Error(`the node has no build ${id} any more`);
    status = next;
  }
  await keepImage(db, build, status);
  crashPoint("build.ended");
  if (status.state === "ready") await keepBuilt(deps, build, status);
  else await settleFailure(deps, build, status);
}

/** A tag may lead elsewhere by the next attempt, which therefore gets the image that this one has found. */
async function keepImage(db: BuildDeps["db"], build: BuildRow, status?: BuildStatus): Promise<void> {
  if (build.image !== null || !status?.image) return;
  await noteImage(db, build.id, status.image.reference);
  build.image = status.image.reference;
}

/** Undefined if the build has ended instead. */
async function begin(deps: BuildDeps, build: BuildRow): Promise<BuildStatus | undefined> {
  const { db, nodes } = deps;
  const { id, reference, sizes, image } = build;
  if (build.attempts >= LIMITS.templateBuildAttempts) {
    await failBuild(deps, build, `internal: the build was cut off ${build.attempts} times`);
    return undefined;
  }
  const login = await loginOf(deps, build);
  if (login === "sealed") {
    await failBuild(deps, build, "internal: the credential for the registry cannot be opened");
    return undefined;
  }
  if (!(await beginAttempt(db, id))) return undefined;
  build.attempts += 1;
  crashPoint("build.attempt");
  const layout = await findLayout(deps, build).catch((error: unknown) => {
    if (error instanceof ApiError) return error;
    throw error;
  });
  if (layout instanceof ApiError) {
    await settleFailure(deps, build, { failure: failureOfSession(layout) });
    return undefined;
  }
  const status = await nodes.putBuild(id, {
    ...{ reference, sizes, ...layout },
    ...(login && { credential: login }),
    // A layout is what its session has written by now.
    ...(image !== null && build.layout === null && { image }),
  });
  crashPoint("build.begun");
  return status;
}

async function loginOf(
  deps: BuildDeps,
  { id, org_id: orgId, credentials_of: projectId, reference, layout }: BuildRow,
): Promise<RegistryLogin | "sealed" | undefined> {
  if (layout !== null) return undefined;
  const [registry = ""] = reference.split("/");
  return await loginFor(deps, { orgId, projectId }, registry).catch((err: unknown) => {
    deps.log.error({ err, build_id: id }, "the credential for a registry cannot be opened");
    return "sealed" as const;
  });
}

function progressOf({ stage, progress }: BuildStatus): BuildProgress | null {
  return stage === undefined ? null : { stage, ...progress };
}
