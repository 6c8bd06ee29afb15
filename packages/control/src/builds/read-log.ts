/** Reads the log of a template's newest build, or of the build of one version. */
import type { BuildLines } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { findKeptLog, listBuilds } from "../templates/build-store.ts";
import { getTemplate } from "../templates/get.ts";
import { readReference } from "../templates/reference.ts";
import type { BuildDeps } from "./deps.ts";

export async function readLog(
  { db, nodes, node }: Pick<BuildDeps, "db" | "nodes" | "node">,
  scope: Scope,
  text: string,
): Promise<BuildLines> {
  const reference = readReference(text);
  const builds = reference ? await listBuilds(db, scope, reference.name) : [];
  const build =
    reference?.version === undefined ? builds[0] : builds.find(({ version }) => version === reference.number);
  if (!build) {
    // A template that was not imported has no lines; one that does not exist is not found.
    await getTemplate({ db, node }, scope, text);
    return { lines: [] };
  }
  const kept = await findKeptLog(db, build.id);
  // The node knows nothing of a build that waits, or has lines of an earlier attempt.
  return { lines: kept ?? (await nodes.readBuildLog(build.id)) ?? [] };
}
