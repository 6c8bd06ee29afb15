import { DEFAULT_SIZE, LIMITS, type ParsedSessionCreate } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import { type Principal, scopeOf } from "../access/principal.ts";
import { checkProjectScope, resolveProject } from "../access/resolve-project.ts";
import type { Database } from "../db/pool.ts";
import type { OwnHosts } from "../egress/entry.ts";
import type { EgressCaps } from "../egress/org-cap.ts";
import { normalPolicy } from "../egress/policy.ts";
import { tellingRefusal, wantedBy } from "../events/refusals.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { admitSession, BASE_TEMPLATE, checkReferences, type SessionSettings } from "./admit.ts";
import { checkCreate } from "./create-rules.ts";
import { bodyDigest, claimIdempotencyKey } from "./idempotency.ts";
import { insertIdempotencyKey } from "./idempotency-store.ts";
import type { Provisioner } from "./provision.ts";
import { mapOrNull, type StartSettings, startFrom } from "./start-from.ts";
import { findAnySession, type SessionRow } from "./store.ts";

export interface CreateDeps {
  db: Database;
  pepper: Buffer;
  node: NodeState;
  nodes: NodeClient;
  provisioner: Provisioner;
  ownHosts: OwnHosts;
  egressCaps: EgressCaps;
}

/** Makes a session, or finds the one that the same idempotent request made before. Provisioning goes on behind. */
export async function createSession(
  deps: CreateDeps,
  principal: Principal,
  { body, idempotencyKey }: { body: ParsedSessionCreate; idempotencyKey?: string },
): Promise<{ session: SessionRow; isReplay: boolean }> {
  const askedAt = performance.now();
  checkProjectScope(principal, body.project_id);
  checkCreate(deps, body);
  const wanted = wantedBy(principal, body.project_id, "create");
  const created = await tellingRefusal(deps.db, wanted, () => admit(deps, principal, body, idempotencyKey));
  crashPoint("create.commit");
  if (!created.isReplay) deps.provisioner.start(created.session, performance.now() - askedAt);
  return created;
}

async function admit(
  deps: CreateDeps,
  principal: Principal,
  body: ParsedSessionCreate,
  idempotencyKey: string | undefined,
): Promise<{ session: SessionRow; isReplay: boolean }> {
  return await deps.db.transaction().execute(async (tx) => {
    const project_id = body.project_id ?? principal.scopedProjectId ?? principal.defaultProjectId;
    const idempotent = idempotencyKey && {
      orgId: principal.orgId,
      key: idempotencyKey,
      // The same body in another project is another request.
      bodyDigest: bodyDigest(deps.pepper, meaningOf(deps, { ...body, project_id })),
    };
    if (idempotent) {
      const knownId = await claimIdempotencyKey(tx, idempotent);
      const known =
        knownId && (await findAnySession(tx, { orgId: principal.orgId, projectId: null }, knownId));
      if (known) return { session: known, isReplay: true };
    }
    checkReferences(body);
    const projectId = await resolveProject(tx, principal, body.project_id);
    const start = await startFrom(deps, tx, scopeOf(principal), body);
    const session = await admitSession(deps, tx, principal, settingsOf(body, projectId, start));
    if (idempotent) await insertIdempotencyKey(tx, { ...idempotent, sessionId: session.id });
    return { session, isReplay: false };
  });
}

/** What is asked for, told in one way: the client that repeats a create may write out what the first left to us. */
function meaningOf({ ownHosts }: CreateDeps, body: ParsedSessionCreate): object {
  const { labels, size, egress, from_checkpoint } = body;
  // Left to a saved state, these are as it has them.
  const template = from_checkpoint == null ? body.template || BASE_TEMPLATE : null;
  const policy = normalPolicy(egress ?? { mode: "allow" }, ownHosts, "egress.allow");
  return {
    ...body,
    ...chosenOf(body),
    on_detach: null,
    labels,
    template,
    size: template === BASE_TEMPLATE ? (size ?? DEFAULT_SIZE) : size,
    no_sudo: body.no_sudo ?? false,
    egress: (egress || template) && { ...policy, allow: policy.allow.toSorted() },
  };
}

export function settingsOf(
  body: ParsedSessionCreate,
  projectId: string | null,
  start: StartSettings,
): SessionSettings {
  return { ...start, origin: "api", project_id: projectId, ...chosenOf(body) };
}

/** The settings in which the body alone has a say, with their defaults. */
function chosenOf(body: ParsedSessionCreate) {
  return {
    name: body.name ?? null,
    labels: mapOrNull(body.labels),
    external_id: body.external_id || null,
    on_pty_detach: body.on_pty_detach ?? body.on_detach ?? "pause",
    paused_ttl_ms: body.paused_ttl_ms || LIMITS.pausedTtlDefaultMs,
    idle_timeout_ms: body.idle_timeout_ms ?? null,
    max_lifetime_ms: body.max_lifetime_ms ?? null,
    destroy_on_completion: body.destroy_on_completion ?? false,
    command_capture: body.command_capture ?? "executable",
    wake_on_http: body.wake_on_http ?? true,
    egress_cap_bytes: body.egress_cap_bytes ?? null,
  };
}
