import { DEFAULT_SIZE, SIZE_NAMES, type TemplateSave } from "@vivarium/contract/api";
import type { SnapshotStatus } from "@vivarium/contract/node";
import type { Queries } from "../db/pool.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { openStateKey, stateKeyColumns } from "../secrets/state-key.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { BuildRow } from "./build-store.ts";
import { insertTemplate, type TemplateRow, takeNextVersion } from "./store.ts";

/** The next version number of a name, for a build that may fail: numbers are never given again. */
export async function takeVersion(tx: Queries, orgId: string, name: string): Promise<number> {
  return await takeNextVersion(tx, orgId, name);
}

/** Records what a node made of an image as the version that its build was for. */
export async function keepImage(
  tx: Queries,
  build: BuildRow,
  { image, sizes }: { image: string; sizes: readonly string[] },
): Promise<void> {
  const { id, org_id, project_id, name, version, description } = build;
  await insertTemplate(tx, {
    ...{ id, org_id, project_id, name, version, description },
    session_id: null,
    has_memory: false,
    size: SIZE_NAMES.find((size) => sizes.includes(size)) ?? DEFAULT_SIZE,
    // Its machines start from what the node made, which has the build's id.
    baseline: id,
    no_sudo: false,
    source_image: image,
    sizes: [...sizes],
  });
}

/** Records a snapshot as the next version of a template. A sealed one opens with its session's state key. */
export async function keepVersion(
  { keyring }: { keyring: Keyring },
  tx: Queries,
  session: SessionRow,
  { name, description, snapshot }: TemplateSave & { snapshot: SnapshotStatus },
): Promise<TemplateRow> {
  const id = snapshot.snapshot_id;
  const stateKey = await openStateKey(keyring, session);
  const row = await insertTemplate(tx, {
    id,
    org_id: session.org_id,
    project_id: session.project_id,
    name,
    version: await takeNextVersion(tx, session.org_id, name),
    description: description ?? null,
    session_id: session.id,
    has_memory: snapshot.memory !== false,
    size: session.size,
    baseline: session.baseline ?? session.template,
    no_sudo: session.no_sudo,
    ...(stateKey && stateKeyColumns(keyring, { org_id: session.org_id, id }, stateKey)),
  });
  await appendEvent(tx, eventOf(session, "template.ready", { name, version: String(row.version) }));
  return row;
}
