/** Saves a session's state as a version of a template of its organisation. */

import type { Template, TemplateSave } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import type { NodeState } from "../fleet/node-state.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { SessionRow } from "../sessions/store.ts";
import { keepVersion } from "../templates/keep.ts";
import { isOfficial } from "../templates/official.ts";
import { toTemplate } from "../templates/record.ts";
import { findVersionById, listVersions } from "../templates/store.ts";
import { keepSnapshot } from "./snapshot-steps.ts";

export type SaveTemplateDeps = MoveDeps & { node: NodeState };

export async function saveTemplate(
  deps: SaveTemplateDeps,
  scope: Scope,
  { sessionId, body: { name, description }, by }: { sessionId: string; body: TemplateSave; by: Caller },
): Promise<{ template: Template; timings: Record<string, number> }> {
  if (isOfficial(await deps.node.current(), name)) {
    throw new ApiError(
      "forbidden",
      `name: ${JSON.stringify(name)} is the name of an official template; choose another`,
    );
  }
  const { row, timings } = await keepSnapshot(deps, scope, sessionId, {
    kind: "save_template",
    prefix: "tpl_",
    check: refuseSecrets,
    find: findVersionById,
    keep: (tx, session, { snapshot_id: id }) => keepVersion(tx, session, { id, name, description }),
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

/**
 * Sessions of a template start with its memory, which may contain the secrets of the session that it was made from, or of
 * one whose checkpoint that session was started from.
 */
async function refuseSecrets(session: SessionRow): Promise<void> {
  if (!session.may_hold_secrets) return;
  throw new ApiError(
    "conflict",
    "the session has secrets, or comes from one that had, and its memory may contain them, which a template keeps; " +
      "prepare the template in a session without secrets",
  );
}
