import type { Template } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { listBuilds } from "./build-store.ts";
import { isMadeBySetup, isOfficial, notMadeHere, officialTemplate, officialVersions } from "./official.ts";
import { toOwnTemplate } from "./record.ts";
import { readReference } from "./reference.ts";
import { listVersions } from "./store.ts";

/** Reads a template by `name`, or one of its versions by `name@version`. */
export async function getTemplate(
  { db, node }: { db: Database; node: NodeState },
  scope: Scope,
  text: string,
): Promise<Template> {
  const reference = readReference(text);
  if (!reference) throw templateNotFound();
  const { name, version } = reference;
  const info = await node.current();
  if (isOfficial(info, name)) {
    if (version !== undefined && !officialVersions(info, name).includes(version)) throw templateNotFound();
    return officialTemplate(info, name, version);
  }
  // Before the versions: a build that ends meanwhile is a version then.
  const builds = await listBuilds(db, scope, name);
  const template = toOwnTemplate({ builds, versions: await listVersions(db, scope, name) }, info, version);
  if (!template) throw info && isMadeBySetup(name) ? notMadeHere(name) : templateNotFound();
  return template;
}

export function templateNotFound(): ApiError {
  return new ApiError(
    "not_found",
    "template not found: neither an official one nor one of your organisation has this name and version",
  );
}
