/** Checks the project that a request names, and finds the project of a new session. */
import { PROJECT_ID_PATTERN } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { Principal } from "./principal.ts";
import { hasProject } from "./store.ts";

/** Throws if the key is bound to another project than the one asked for. */
function checkProjectScope(principal: Principal, asked: string | null | undefined): void {
  if (asked == null || principal.scopedProjectId === null || asked === principal.scopedProjectId) return;
  throw new ApiError(
    "forbidden",
    "project_id: this API key is bound to another project; leave the field out",
  );
}

/** Checks `project_id` of a body before the body's schema does: what the key may use is checked first. */
export function checkProjectOfBody(principal: Principal, body: unknown): void {
  const asked = (body as { project_id?: unknown } | null | undefined)?.project_id;
  if (typeof asked === "string") checkProjectScope(principal, asked);
}

/**
 * The project of a new session: the one asked for, which must exist, or else the key's own. `requireProject` checks it again
 * under the organisation's lock.
 */
export async function resolveProject(
  tx: Queries,
  principal: Principal,
  asked: string | null | undefined,
): Promise<string | null> {
  return (await resolveBinding(tx, principal, asked)) ?? principal.defaultProjectId;
}

/** The project that a new key is bound to: the one asked for, which must exist, or else that of the caller's key. */
export async function resolveBinding(
  tx: Queries,
  principal: Principal,
  asked: string | null | undefined,
): Promise<string | null> {
  if (asked == null || principal.scopedProjectId !== null) return asked ?? principal.scopedProjectId;
  if (!PROJECT_ID_PATTERN.test(asked)) throw noSuchProject();
  await requireProject(tx, principal, asked);
  return asked;
}

/**
 * Throws if the project was deleted. The organisation's row is locked before a project's row, so a project that was
 * found before the lock may be gone once the lock is there.
 */
export async function requireProject(
  tx: Queries,
  { orgId, defaultProjectId }: Principal,
  projectId: string | null,
): Promise<void> {
  // The default project is never deleted, and most sessions are made in it: they cost no query.
  if (projectId === null || projectId === defaultProjectId) return;
  if (!(await hasProject(tx, orgId, projectId))) throw noSuchProject();
}

function noSuchProject(): ApiError {
  return new ApiError("not_found", "project_id: no project of your organisation has this id");
}
