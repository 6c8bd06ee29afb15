/** Finds the template version that a create names, and checks that the node can start it. */
import type { Size } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import type { Scope } from "../access/principal.ts";
import { canFetch } from "../archive-records/fetch.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { StateKeyColumns } from "../secrets/state-key.ts";
import { listBuilds } from "./build-store.ts";
import { isMadeBySetup, isOfficial, notMadeHere, officialVersions } from "./official.ts";
import { readReference, type TemplateReference } from "./reference.ts";
import { lockVersion, type TemplateRow } from "./store.ts";

export interface ResolvedTemplate {
  version: string | null;
  /** For a template of the caller's. */
  saved: SavedTemplate | null;
  /** The reason why the template cannot be started at the moment. */
  refusal?: ApiError;
}

export interface SavedTemplate {
  /** The snapshot to start from; null: it is made of an image, and machines start from its baseline. */
  snapshotId: string | null;
  /** The only size of a snapshot, or those in which an image was baked. */
  sizes: readonly Size[];
  baseline: string;
  noSudo: boolean;
  row: StateKeyColumns;
}

/** Time limit for asking the node. If it does not answer, the create proceeds, and provisioning waits. */
const NODE_CHECK_MS = 400;
const NODE_AWAY = "the node that knows its versions does not answer at the moment";

export async function resolveTemplate(
  { node, nodes }: { node: NodeState; nodes: NodeClient },
  tx: Queries,
  scope: Scope,
  text: string,
): Promise<ResolvedTemplate> {
  const reference = readReference(text);
  if (!reference) throw noSuchTemplate(text);
  const info = await node.current();
  if (isOfficial(info, reference.name)) return resolveOfficial(info, reference);
  const { name, version, number } = reference;
  // Versions of saved templates are numbers, so any other text matches nothing.
  const mayExist = version === undefined || number !== undefined;
  const find = async () => (mayExist ? await lockVersion(tx, scope, { name, version: number }) : undefined);
  let row = await find();
  if (!row) {
    const refusal = await notReady(tx, scope, reference);
    // Its build may have ended since the first look.
    row = await find();
    if (!row) throw refusal ?? unknownTemplate(info, reference.name, text);
  }
  const refusal = await checkOnNode(tx, nodes, row);
  const { id: snapshotId, baseline, no_sudo: noSudo } = row;
  const sizes = (row.sizes ?? [row.size]) as Size[];
  const saved = { snapshotId: row.sizes ? null : snapshotId, sizes, baseline, noSudo, row };
  return { version: String(row.version), saved, refusal };
}

/** A named version must exist: there is no fallback to another one. */
function resolveOfficial(info: NodeInfo | undefined, { name, version }: TemplateReference): ResolvedTemplate {
  if (version === undefined) return { version: null, saved: null };
  if (!info) throw unavailable(`template: ${NODE_AWAY}`);
  if (!officialVersions(info, name).includes(version)) throw noSuchTemplate(`${name}@${version}`);
  return { version, saved: null };
}

/**
 * Refuses missing and damaged snapshots. Some damage is found only by the first load: that session fails, and later
 * creates are refused.
 */
async function checkOnNode(
  db: Queries,
  nodes: NodeClient,
  { id, name, version, sizes }: TemplateRow,
): Promise<ApiError | undefined> {
  const signal = AbortSignal.timeout(NODE_CHECK_MS);
  const look = await (sizes ? lookAtBuild(nodes, id, signal) : nodes.lookAtSnapshot(id, signal)).catch(
    () => "there",
  );
  if (look === "there") return undefined;
  // The start fetches it.
  if (!sizes && (await canFetch({ db }, id))) return undefined;
  const why =
    look === "damaged"
      ? `the saved state of version ${version} of ${name} is damaged; save it again, or use another version`
      : `the node does not have version ${version} of ${name} at the moment`;
  return unavailable(`template: ${why}`);
}

async function lookAtBuild(nodes: NodeClient, id: string, signal: AbortSignal): Promise<"there" | "lost"> {
  return (await nodes.findBuild(id, signal))?.state === "ready" ? "there" : "lost";
}

/** The refusal of a version that is not ready, if there is a build of it. */
async function notReady(
  tx: Queries,
  scope: Scope,
  { name, version, number }: TemplateReference,
): Promise<ApiError | undefined> {
  const builds = await listBuilds(tx, scope, name);
  const build = version === undefined ? builds[0] : builds.find((one) => one.version === number);
  if (!build || build.state === "ready") return undefined;
  const state = build.error === null ? `${build.state}` : `failed: ${build.error}`;
  return new ApiError("conflict", `template: version ${build.version} of ${name} is not ready, but ${state}`);
}

/** Why nothing has this name. An official one may be on a node that does not answer. */
function unknownTemplate(info: NodeInfo | undefined, name: string, text: string): ApiError {
  if (!isMadeBySetup(name)) return noSuchTemplate(text);
  return info ? notMadeHere(name) : unavailable(`template: ${NODE_AWAY}`);
}

function noSuchTemplate(text: string): ApiError {
  const shown = text.length > 100 ? `${text.slice(0, 100)}…` : text;
  return new ApiError("not_found", `template: no template or version is called ${JSON.stringify(shown)}`);
}

function unavailable(message: string): ApiError {
  return new ApiError("template_version_unavailable", message);
}
