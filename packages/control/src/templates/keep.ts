import type { TemplateSave } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { SessionRow } from "../sessions/store.ts";
import { insertTemplate, type TemplateRow, takeNextVersion } from "./store.ts";

/** Records the snapshot `id` as the next version of a template. */
export async function keepVersion(
  tx: Queries,
  session: SessionRow,
  { id, name, description }: TemplateSave & { id: string },
): Promise<TemplateRow> {
  const row = await insertTemplate(tx, {
    id,
    org_id: session.org_id,
    project_id: session.project_id,
    name,
    version: await takeNextVersion(tx, session.org_id, name),
    description: description ?? null,
    session_id: session.id,
    // Memory may be kept: a session with secrets is refused (saved-state/save-template.ts).
    has_memory: true,
    size: session.size,
    baseline: session.baseline ?? session.template,
    no_sudo: session.no_sudo,
  });
  await appendEvent(tx, eventOf(session, "template.ready", { name, version: String(row.version) }));
  return row;
}
