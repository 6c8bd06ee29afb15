/** Turns the rows of an organisation's template into its public record. Unset optional fields are left out. */
import type { Template } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import type { QueuedRow } from "./build-store.ts";
import type { TemplateRow } from "./store.ts";

/** The rows of one name: ready versions, and builds, newest first each. */
export interface OwnTemplate {
  versions: readonly TemplateRow[];
  builds: readonly QueuedRow[];
}

/** Undefined without rows, or without the asked version. Without one, the state is that of the newest version or build. */
export function toOwnTemplate(
  { versions, builds }: OwnTemplate,
  info: NodeInfo | undefined,
  version?: string,
): Template | undefined {
  const isAsked = (row: { version: number }) => version === undefined || String(row.version) === version;
  const shown = versions.find(isAsked);
  const build = builds.find((row) => row.state !== "ready" && isAsked(row));
  const isNewer = build && build.version > (shown?.version ?? 0);
  if (!shown) return isNewer ? toTemplateOfBuild(build, versions, info) : undefined;
  const template = toTemplate(shown, versions, info);
  return isNewer ? { ...template, ...stateOf(build) } : template;
}

/** One version of a template, with the names of all its ready versions, newest first. */
export function toTemplate(
  shown: TemplateRow,
  versions: readonly TemplateRow[],
  info: NodeInfo | undefined,
): Template {
  return {
    name: shown.name,
    kind: "user",
    ...(shown.description !== null && { description: shown.description }),
    created_at: shown.created_at.toISOString(),
    status: isDamaged(info, shown) ? "failed" : "ready",
    version: String(shown.version),
    versions: namesOf(versions, info),
    size: shown.size,
    ...(shown.source_image !== null && { source_image: shown.source_image }),
    memory: shown.has_memory,
  };
}

/** A template without a ready version that could be shown. */
function toTemplateOfBuild(
  build: QueuedRow,
  versions: readonly TemplateRow[],
  info: NodeInfo | undefined,
): Template {
  return {
    name: build.name,
    kind: "user",
    ...(build.description !== null && { description: build.description }),
    created_at: build.created_at.toISOString(),
    ...stateOf(build),
    ...(versions[0] && { version: String(versions[0].version) }),
    versions: namesOf(versions, info),
    source_image: build.image ?? build.reference,
    memory: false,
  };
}

function stateOf({ state, position, progress, error }: QueuedRow) {
  return {
    status: state,
    ...(state === "queued" && position !== null && { queue_position: position }),
    ...(state === "building" && progress && { progress }),
    ...(error !== null && { build_error: error }),
  };
}

const isDamaged = (info: NodeInfo | undefined, { id }: TemplateRow) =>
  info?.damaged_snapshots?.includes(id) ?? false;

const namesOf = (versions: readonly TemplateRow[], info: NodeInfo | undefined) =>
  versions.filter((row) => !isDamaged(info, row)).map(({ version }) => String(version));
