/** Queues a build that makes a version of a template of a container image, from a registry or from a session. */
import { LIMITS, type Template, type TemplateImport } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { crashPoint } from "@vivarium/kit/crash-point";
import { randomId } from "@vivarium/kit/id";
import { parseReference, textOfReference } from "@vivarium/oci/reference";
import { RegistryError } from "@vivarium/oci/registry-error";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent } from "../events/append.ts";
import { baselinesFor } from "../fleet/baselines.ts";
import { oneLine } from "../http/render-error.ts";
import { isOnInternet } from "../registries/registry-host.ts";
import { getTemplate } from "../templates/get.ts";
import { takeVersion } from "../templates/keep.ts";
import { assertNameIsFree, BASE_TEMPLATE } from "../templates/official.ts";
import type { BuildDeps } from "./deps.ts";
import { type LayoutName, nameLayout } from "./layout.ts";
import { ALL_BUILDS } from "./run-builds.ts";
import { countUnfinished, deleteFailed, insertBuild, lockQueue } from "./store.ts";

const { templateBuildsPerOrg: MOST_OWN, templateBuildsPerNode: MOST, imageReferenceChars: CHARS } = LIMITS;
/** A build takes minutes, so its place in the queue is not free at once. */
const RETRY_S = 30;

export async function importTemplate(
  deps: BuildDeps,
  principal: Principal,
  { body: { name, description, ...from }, by }: { body: TemplateImport; by: Caller },
): Promise<Template> {
  const source = await readSource(deps, principal, from);
  const { reference, session_id } = source;
  // A node that is away at the moment begins the build when it is back. One that was never reached is asked with patience.
  const info = (await deps.node.current()) ?? (await deps.node.refresh().catch(() => undefined));
  assertNameIsFree(info, name);
  const sizes = sizesOf(info);
  const { orgId, scopedProjectId, defaultProjectId } = principal;
  const build = {
    id: `tpl_${randomId()}`,
    org_id: orgId,
    project_id: scopedProjectId ?? defaultProjectId,
    credentials_of: scopedProjectId,
    ...{ name, description: description ?? null, ...source, sizes },
  };
  const version = await deps.db.transaction().execute(async (tx) => {
    await lockQueue(tx);
    const next = await takeVersion(tx, orgId, name);
    if ((await insertBuild(tx, { ...build, version: next })) === "name_busy") throw nameBusy(name);
    await requirePlace(tx, orgId);
    await deleteFailed(tx, build);
    const facts = { name, version: String(next) };
    await appendEvent(tx, { type: "template.queued", orgId, projectId: build.project_id, data: facts });
    const meta = { version: facts.version, image: reference };
    const entry = { by, action: "template.import", target: name, meta } as const;
    await appendEntry(deps, tx, { ...entry, ...(session_id !== null && { sessionId: session_id }) });
    return next;
  });
  crashPoint("template_import.commit");
  await deps.jobs.add("template_builds", ALL_BUILDS).catch((err: unknown) =>
    // The row says what is to be done.
    deps.log.warn({ err, build_id: build.id }, "the job of a build is added by the sweep"),
  );
  return await getTemplate(deps, scopeOf(principal), `${name}@${version}`);
}

async function readSource(
  deps: BuildDeps,
  principal: Principal,
  { from_image: image, from_layout: layout }: Pick<TemplateImport, "from_image" | "from_layout">,
): Promise<LayoutName> {
  if (image != null && layout != null)
    throw new ApiError("validation", "from_layout: is accepted without from_image only");
  if (layout != null) return await nameLayout(deps, scopeOf(principal), layout);
  if (image != null) return { reference: readImage(image), session_id: null, layout: null };
  throw new ApiError("validation", "from_image: must be a reference of an image, got nothing");
}

/** The reference in full. */
function readImage(text: string): string {
  if (text.length > CHARS)
    throw new ApiError("validation", `from_image: must be at most ${CHARS} characters long`);
  try {
    const reference = parseReference(text);
    if (isOnInternet(reference.registry)) return textOfReference(reference);
  } catch (error) {
    if (!(error instanceof RegistryError)) throw error;
    throw new ApiError("validation", oneLine(`from_image: ${error.message}`, LIMITS.errorMessageChars));
  }
  throw new ApiError(
    "validation",
    "from_image: must be of a registry on the internet, not of a private address or a name of this host",
  );
}

/** Those in which `base` can be started. */
function sizesOf(info: NodeInfo | undefined): string[] {
  if (!info) throw new ApiError("unavailable", "the node that makes templates does not answer at the moment");
  const sizes = baselinesFor(info, BASE_TEMPLATE).map(({ size }) => size);
  if (info.builds === true && sizes.length > 0) return [...new Set(sizes)];
  throw new ApiError("unavailable", "this server cannot make templates of images", { retryAfterS: null });
}

/** Counts the new build too. */
async function requirePlace(tx: Queries, orgId: string): Promise<void> {
  const { own, all } = await countUnfinished(tx, orgId);
  if (own > MOST_OWN)
    throw new ApiError(
      "rate_limited",
      `${MOST_OWN} imports of your organisation are queued or building; wait for one, or delete its template`,
      { retryAfterS: RETRY_S },
    );
  if (all > MOST)
    throw new ApiError("rate_limited", "too many imports are queued on this server; try again later", {
      retryAfterS: RETRY_S,
    });
}

function nameBusy(name: string): ApiError {
  return new ApiError(
    "conflict",
    `name: ${name} is being imported already; wait for it, or delete the template to end that`,
  );
}
