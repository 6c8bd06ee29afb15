import type { Log } from "@vivarium/kit/log";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { ApiError } from "../http/api-error.ts";
import { releaseOrigin } from "../sessions/release-origin.ts";
import { templateNotFound } from "./get.ts";
import { isOfficial } from "./official.ts";
import { readReference, versionNumber } from "./reference.ts";
import { removeVersions } from "./store.ts";

/** Deletes a template of the caller's, or one of its versions. What was started from it goes on. */
export async function deleteTemplate(
  deps: { db: Database; nodes: NodeClient; node: NodeState; log: Log },
  scope: Scope,
  text: string,
): Promise<void> {
  const reference = readReference(text);
  if (!reference) throw templateNotFound();
  const { name } = reference;
  if (isOfficial(await deps.node.current(), name)) {
    throw new ApiError(
      "forbidden",
      `${name} is an official template; only templates of your own can be deleted`,
    );
  }
  const version = reference.version === undefined ? undefined : versionNumber(reference.version);
  // What is no number is the version of no template of the caller's.
  if (reference.version !== undefined && version === undefined) throw templateNotFound();
  const gone = await removeVersions(deps.db, scope, { name, version });
  if (gone.length === 0) throw templateNotFound();
  for (const { id } of gone) await releaseOrigin(deps, id);
}
