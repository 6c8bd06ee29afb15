import { LIMITS, type ParsedSessionCreate } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { resolveProject } from "../access/resolve-project.ts";
import { checkConnections } from "../connections/check.ts";
import type { StoredPolicy } from "../egress/entry.ts";
import { createAttempt, emitIfRefused } from "../events/refusals.ts";
import { findAnySession, type SessionRow } from "../sessions/store.ts";
import { lockVolume } from "../volumes/attach.ts";
import { admitSession, type SessionSettings } from "./admit.ts";
import { type CheckedCreate, checkCreate } from "./create-rules.ts";
import type { StartDeps } from "./deps.ts";
import { bodyDigest, claimIdempotencyKey } from "./idempotency.ts";
import { insertIdempotencyKey } from "./idempotency-store.ts";
import { mapOrNull, type StartSettings, startFrom } from "./start-from.ts";

/** Makes a session, or finds the one that the same idempotent request made before. Provisions it in the background. */
export async function createSession(
  deps: StartDeps,
  principal: Principal,
  { body, idempotencyKey, by }: { body: ParsedSessionCreate; idempotencyKey?: string; by: Caller },
): Promise<{ session: SessionRow; isReplay: boolean }> {
  const askedAt = performance.now();
  const checked = checkCreate(deps, body);
  const wanted = createAttempt(principal, body.project_id, "create");
  const created = await emitIfRefused(deps.db, wanted, () =>
    admit(deps, principal, { body, checked, idempotencyKey, by }),
  );
  crashPoint("create.commit");
  if (!created.isReplay) deps.provisioner.start(created.session, performance.now() - askedAt);
  return created;
}

async function admit(
  deps: StartDeps,
  principal: Principal,
  {
    body,
    checked,
    idempotencyKey,
    by,
  }: { body: ParsedSessionCreate; checked: CheckedCreate; idempotencyKey?: string; by: Caller },
): Promise<{ session: SessionRow; isReplay: boolean }> {
  return await deps.db.transaction().execute(async (tx) => {
    const project = body.project_id ?? principal.scopedProjectId ?? principal.defaultProjectId;
    const { on_detach: alias, ...rest } = body;
    const idempotent = idempotencyKey && {
      orgId: principal.orgId,
      key: idempotencyKey,
      // The same body in another project is another request.
      bodyDigest: bodyDigest(deps.pepper, {
        body: { ...rest, on_pty_detach: body.on_pty_detach ?? alias },
        project,
      }),
    };
    if (idempotent) {
      const knownId = await claimIdempotencyKey(tx, idempotent);
      const known =
        knownId && (await findAnySession(tx, { orgId: principal.orgId, projectId: null }, knownId));
      if (known) return { session: known, isReplay: true };
    }
    const volume = await lockVolume(tx, scopeOf(principal), body.volume_id);
    const projectId = await resolveProject(tx, principal, body.project_id);
    const { start, refusal } = await startFrom(deps, tx, scopeOf(principal), checked);
    const session = await admitSession(deps, tx, principal, {
      settings: { ...settingsOf(deps, body, projectId, start), ...volume },
      by,
    });
    if (refusal) throw refusal;
    if (idempotent) await insertIdempotencyKey(tx, { ...idempotent, sessionId: session.id });
    return { session, isReplay: false };
  });
}

/** The body without its egress policy, which is part of `StartSettings`. */
type ChosenSettings = Omit<ParsedSessionCreate, "egress">;

export function settingsOf(
  { ownHosts }: Pick<StartDeps, "ownHosts">,
  body: ChosenSettings,
  projectId: string | null,
  start: StartSettings,
): SessionSettings {
  const secrets = body.secrets ?? {};
  const { max_lifetime_ms: lifetimeMs } = body;
  const connections = checkConnections(body.connections ?? [], {
    policy: JSON.parse(start.egress) as StoredPolicy,
    ownHosts,
    remainingS: lifetimeMs ? Math.floor(lifetimeMs / 1000) : undefined,
  });
  return { ...start, origin: "api", project_id: projectId, secrets, connections, ...chosenOf(body) };
}

/** The settings that depend on the body alone, with their defaults. */
function chosenOf(body: ChosenSettings) {
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
    artifact_paths: body.artifacts?.paths ?? null,
  };
}
