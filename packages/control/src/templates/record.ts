/** Rows → public record (part 2, 8). Unset optional fields are left out. */
import type { Template } from "@vivarium/contract/api";
import type { TemplateRow } from "./store.ts";

/** One version of a template, with the names of all of them, newest first. */
export function toTemplate(shown: TemplateRow, versions: readonly TemplateRow[]): Template {
  return {
    name: shown.name,
    kind: "user",
    ...(shown.description !== null && { description: shown.description }),
    created_at: shown.created_at.toISOString(),
    status: "ready",
    version: String(shown.version),
    versions: versions.map(({ version }) => String(version)),
    size: shown.size,
    memory: shown.has_memory,
  };
}
