/** Turns the rows of a saved template into its public record. Unset optional fields are left out. */
import type { Template } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import type { TemplateRow } from "./store.ts";

/** One version of a template, with the names of all its ready versions, newest first. */
export function toTemplate(
  shown: TemplateRow,
  versions: readonly TemplateRow[],
  info: NodeInfo | undefined,
): Template {
  const isDamaged = ({ id }: TemplateRow) => info?.damaged_snapshots?.includes(id) ?? false;
  return {
    name: shown.name,
    kind: "user",
    ...(shown.description !== null && { description: shown.description }),
    created_at: shown.created_at.toISOString(),
    status: isDamaged(shown) ? "failed" : "ready",
    version: String(shown.version),
    versions: versions.filter((row) => !isDamaged(row)).map(({ version }) => String(version)),
    size: shown.size,
    memory: shown.has_memory,
  };
}
