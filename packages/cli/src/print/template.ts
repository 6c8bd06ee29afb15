/** Renders templates as a table, and one template as fields. */
import type { Template } from "@vivarium/sdk";
import { formatBytes } from "./bytes.ts";
import { noPaint, type Paint } from "./paint.ts";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

const STATUS_STYLES = { queued: "yellow", building: "yellow", ready: "green", failed: "red" } as const;

export function renderTemplates(templates: Template[], now: Date, paint: Paint = noPaint): string {
  const rows = templates.map((template) => [
    template.name,
    template.kind,
    template.status,
    template.versions.join(" "),
    template.memory ? "yes" : "no",
    // The creation time of an official template may be unknown.
    template.created_at ? formatAge(now.getTime() - Date.parse(template.created_at)) : "",
    template.description ?? "",
  ]);
  const headings = ["NAME", "KIND", "STATUS", "VERSIONS", "MEMORY", "AGE", "DESCRIPTION"];
  return renderTable(headings, rows, (padded, { row, heading }) => {
    if (row === 0) return paint("dim", padded);
    const template = templates[row - 1];
    return heading === "STATUS" && template ? paint(STATUS_STYLES[template.status], padded) : padded;
  });
}

export function renderTemplate(template: Template): string {
  return renderFields([
    ["name", template.name],
    ["kind", template.kind],
    ["description", template.description],
    ["status", template.status],
    ["queue", template.queue_position === undefined ? undefined : `place ${template.queue_position}`],
    ["progress", template.progress && renderBuild(template.progress)],
    ["error", template.build_error],
    ["version", template.version],
    ["versions", template.versions.join(" ")],
    ["memory", template.memory ? "saved" : "not saved: sessions boot from the disk alone"],
    ["smallest size", template.size],
    ["image", template.source_image],
    ["created", template.created_at],
  ]);
}

/** `name@version` of the newest version that is ready. */
export function pinned({ name, version }: { name: string; version?: string }): string {
  return version === undefined ? name : `${name}@${version}`;
}

const STAGES: Record<string, string> = {
  pull: "pulling the image",
  unpack: "unpacking its layers",
  hash: "digesting the disk",
  bake: "booting the first machines",
};

/** How far an import is, in one line. */
export function renderBuild({ stage, layers, bytes }: NonNullable<Template["progress"]>): string {
  const counted = [
    ...(layers ? [`${layers.done} of ${layers.total} layers`] : []),
    ...(bytes ? [`${formatBytes(bytes.done)} of ${formatBytes(bytes.total)}`] : []),
  ];
  return [STAGES[stage] ?? stage, ...counted].join(", ");
}
