/** Makes, renames and deletes projects: with keys of the whole organisation (docs/spec/access.md). */
import {
  ID_PREFIXES,
  LIMITS,
  PROJECT_ID_PATTERN,
  type ProjectCreate,
  type ProjectPatch,
  type ProjectRecord,
} from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { z } from "zod";
import type { Authenticator } from "../access/authenticate.ts";
import { type Caller, theSystem } from "../access/caller.ts";
import { type Principal, type Scope, scopeOf } from "../access/principal.ts";
import { revokeKeysOf } from "../access/revoke-keys.ts";
import { lockOrg } from "../access/store.ts";
import { type AuditDeps, appendEntry } from "../audit/append.ts";
import type { Database, Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import type { OpenRequests } from "../http/open-requests.ts";
import { removeCredentialsOf } from "../registries/remove-of-project.ts";
import { hasUnfinishedSessions } from "../sessions/store.ts";
import {
  countProjects,
  findProject,
  insertProject,
  lockProject,
  type ProjectRow,
  updateProject,
} from "./store.ts";

export interface ProjectDeps extends AuditDeps {
  db: Database;
  authenticator: Authenticator;
  openRequests: OpenRequests;
}

export async function createProject(
  deps: Pick<ProjectDeps, "db" | "auditKey">,
  principal: Principal,
  { body: { name, labels }, by }: { body: z.output<typeof ProjectCreate>; by: Caller },
): Promise<ProjectRecord> {
  requireWholeOrganisation(principal);
  const { orgId } = principal;
  return await deps.db.transaction().execute(async (tx) => {
    await lockOrg(tx, orgId);
    if ((await countProjects(tx, orgId)) >= LIMITS.projectsPerOrg)
      throw new ApiError(
        "conflict",
        `the organisation has ${LIMITS.projectsPerOrg} projects: delete one first`,
      );
    const id = ID_PREFIXES.project + randomId();
    const row = await insertProject(tx, { id, org_id: orgId, name, labels: toJson(labels) });
    const made = toProject(row, name);
    await appendEntry(deps, tx, { by, action: "project.create", target: id, meta: { name } });
    return made;
  });
}

export async function patchProject(
  deps: Pick<ProjectDeps, "db" | "auditKey">,
  principal: Principal,
  { id, patch, by }: { id: string; patch: z.output<typeof ProjectPatch>; by: Caller },
): Promise<ProjectRecord> {
  const { name, labels } = patch;
  const found = await getProject(deps.db, scopeOf(principal), id);
  requireWholeOrganisation(principal);
  const change = {
    ...(name !== undefined && { name }),
    ...(labels !== undefined && { labels: toJson(labels) }),
  };
  if (Object.keys(change).length === 0) return found;
  return await deps.db.transaction().execute(async (tx) => {
    const changed = toProject(await updateProject(tx, id, change), name);
    const meta = name === undefined ? {} : { name };
    await appendEntry(deps, tx, { by, action: "project.update", target: id, meta });
    return changed;
  });
}

/** Its keys are revoked, and its credentials for registries deleted. Sessions that ended in it keep its id, and so do the records of their use. */
export async function deleteProject(
  deps: ProjectDeps,
  principal: Principal,
  { id, by }: { id: string; by: Caller },
): Promise<void> {
  const { db, authenticator, openRequests } = deps;
  const scope = scopeOf(principal);
  await getProject(db, scope, id);
  requireWholeOrganisation(principal);
  const revoked = await db.transaction().execute(async (tx) => {
    // The organisation before the project: keys, tokens and sessions are made under the same lock, and none is made in a
    // project once it is deleted.
    await lockOrg(tx, principal.orgId);
    const project = await lockProject(tx, scope, id);
    if (!project) throw projectNotFound();
    if (project.is_default) throw new ApiError("conflict", "the default project cannot be deleted");
    if (await hasUnfinishedSessions(tx, id))
      throw new ApiError("conflict", "the project has sessions that have not ended: delete them first");
    await updateProject(tx, id, { deleted_at: new Date() });
    await appendEntry(deps, tx, { by, action: "project.delete", target: id, meta: { name: project.name } });
    await removeCredentialsOf(deps, tx, { orgId: principal.orgId, projectId: id });
    const keys = await revokeKeysOf(tx, id);
    // The keys end with the project: the service revokes them, and each has an entry of its own.
    for (const key of keys)
      await appendEntry(deps, tx, { by: theSystem(principal.orgId), action: "key.revoke", target: key });
    return keys;
  });
  for (const key of revoked) {
    authenticator.forget(key);
    openRequests.endOf(key);
  }
}

export async function getProject(db: Queries, scope: Scope, id: string): Promise<ProjectRecord> {
  const row = PROJECT_ID_PATTERN.test(id) ? await findProject(db, scope, id) : undefined;
  if (!row) throw projectNotFound();
  return toProject(row);
}

export function toProject(row: ProjectRow | "name_taken", name?: string): ProjectRecord {
  if (row === "name_taken")
    throw new ApiError("conflict", `name: another project is called ${JSON.stringify(name)}`);
  return {
    id: row.id,
    name: row.name,
    ...(row.labels && { labels: row.labels }),
    created_at: row.created_at.toISOString(),
    is_default: row.is_default,
  };
}

function requireWholeOrganisation({ scopedProjectId }: Principal): void {
  if (scopedProjectId === null) return;
  throw new ApiError(
    "forbidden",
    "this API key is bound to a project; projects are changed with a key of the whole organisation",
  );
}

function projectNotFound(): ApiError {
  return new ApiError("not_found", "project not found: no project that you may see has this id");
}

function toJson(labels: Record<string, string> | null | undefined): string | null {
  return labels && Object.keys(labels).length > 0 ? JSON.stringify(labels) : null;
}
