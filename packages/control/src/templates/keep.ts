import type { TemplateSave } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { SessionRow } from "../sessions/store.ts";
import { insertTemplate, type TemplateRow, takeNextVersion } from "./store.ts";

/** Makes the next version of a template of the snapshot `id`, which was taken for it. */
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
    // No session can hold secrets or Connections that its memory must not hand on.
    has_memory: true,
    size: session.size,
    baseline: session.baseline ?? session.template,
    no_sudo: session.no_sudo,
  });
  await appendEvent(tx, eventOf(session, "template.ready", { name, version: String(row.version) }));
  return row;
}
