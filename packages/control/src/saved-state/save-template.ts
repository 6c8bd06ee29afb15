/** Saves a session's state as a version of a template of its organisation. */

import type { Template, TemplateSave } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { requireStateKey } from "../moves/start-machine.ts";
import { keepVersion } from "../templates/keep.ts";
import { assertNameIsFree } from "../templates/official.ts";
import { toTemplate } from "../templates/record.ts";
import { findVersionById, listVersions } from "../templates/store.ts";
import { keepSnapshot } from "./snapshot-steps.ts";

export type SaveTemplateDeps = MoveDeps & { node: NodeState };

/**
 * Sessions of a template start with its memory. That of a session which may hold secrets is not saved: its template is the disk
 * alone, and sessions boot from it.
 */
export async function saveTemplate(
  deps: SaveTemplateDeps,
  scope: Scope,
  { sessionId, body: { name, description }, by }: { sessionId: string; body: TemplateSave; by: Caller },
): Promise<{ template: Template; timings: Record<string, number> }> {
  assertNameIsFree(await deps.node.current(), name);
  const { row, timings } = await keepSnapshot(deps, scope, sessionId, {
    kind: "save_template",
    archive: "template",
    prefix: "tpl_",
    check: (session) => requireStateKey(deps, session),
    find: findVersionById,
    keep: (tx, session, snapshot) => keepVersion(deps, tx, session, { name, description, snapshot }),
    by,
    entryOf: ({ version }) => ({
      action: "template.save",
      target: name,
      meta: { version: String(version) },
    }),
    factsOf: ({ version }) => ({ template: name, version }),
  });
  const versions = await listVersions(deps.db, scope, name);
  return { template: toTemplate(row, versions, deps.node.lastKnown), timings };
}
