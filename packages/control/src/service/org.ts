import { DEFAULT_SIZE, LIMITS, type OrgRecord, SIZE_NAMES, SIZES } from "@vivarium/contract/api";
import type { NodeInfo } from "@vivarium/contract/node";
import { type Principal, scopeOf } from "../access/principal.ts";
import { findOrg } from "../access/store.ts";
import type { Database } from "../db/pool.ts";
import { baselinesFor } from "../fleet/baselines.ts";
import { countActiveSessions, countPausedSessions } from "../sessions/store.ts";
import { BASE_TEMPLATE } from "../templates/official.ts";
import { findTemplateNames } from "../templates/store.ts";
import { countGb } from "../volumes/store.ts";
import type { ServiceDeps } from "./deps.ts";

/** Capacity and limits of the caller's organisation. The node's figures are left out while it is down. */
export async function readOrg(
  { db, node, forkChildren, sessionCeiling, volumeSizes }: ServiceDeps,
  principal: Principal,
): Promise<OrgRecord> {
  const org = await findOrg(db, principal.orgId);
  const ceiling = org.concurrent_sessions ?? sessionCeiling;
  const active = await countActiveSessions(db, principal);
  const info = await node.current();
  const baselines = baselinesFor(info, BASE_TEMPLATE);
  return {
    org_id: org.id,
    name: org.name,
    created_at: org.created_at.toISOString(),
    suspended: org.suspended,
    capacity: {
      running: active.org,
      warm: await countPausedSessions(db, principal.orgId),
      limits: { running: ceiling },
      ...(info?.warm && { pool: await poolOf(db, principal, info.warm) }),
    },
    limits: {
      concurrent_sessions: ceiling,
      fork_children: forkChildren,
      idle_timeout_ms: LIMITS.idleTimeoutMs,
      max_lifetime_ms: LIMITS.maxLifetimeMs,
      max_active_window_ms: LIMITS.continuousLiveMs,
      volume_gb_used: await countGb(db, scopeOf(principal)),
      volume_gb_total: volumeSizes.orgGb,
      volume_max_gb: volumeSizes.maxGb,
    },
    default_size: DEFAULT_SIZE,
    sizes: SIZE_NAMES.map((name) => ({
      name,
      ...SIZES[name],
      available: baselines.some(({ size }) => size === name),
    })),
  };
}

/** Machines that wait for creates: those of official templates, and those of the caller's own templates. */
async function poolOf(
  db: Database,
  principal: Principal,
  warm: NonNullable<NodeInfo["warm"]>,
): Promise<OrgRecord["capacity"]["pool"]> {
  const saved = warm.flatMap(({ snapshot_id: id }) => id ?? []);
  const names = await findTemplateNames(db, scopeOf(principal), saved);
  return warm.flatMap(({ template, size, snapshot_id: id, ready, wanted }) => {
    const name = id === undefined ? template : names.get(id);
    return name === undefined ? [] : [{ template: name, size, ready, wanted }];
  });
}
