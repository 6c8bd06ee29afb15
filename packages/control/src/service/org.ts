import { DEFAULT_SIZE, LIMITS, type OrgRecord, SIZE_NAMES, SIZES } from "@vivarium/contract/api";
import type { Principal } from "../access/principal.ts";
import { findOrg } from "../access/store.ts";
import type { Database } from "../db/pool.ts";
import type { NodeState } from "../fleet/node-state.ts";
import { BASE_TEMPLATE } from "../sessions/admit.ts";
import { countActive } from "../sessions/store.ts";

/** Capacity and limits of the caller's organisation, from the catalog alone. */
export async function readOrg(
  { db, node }: { db: Database; node: NodeState },
  principal: Principal,
): Promise<OrgRecord> {
  const org = await findOrg(db, principal.orgId);
  const active = await countActive(db, principal.orgId, principal.keyId);
  const baselines = (node.lastKnown?.baselines ?? []).filter(({ template }) => template === BASE_TEMPLATE);
  return {
    org_id: org.id,
    name: org.name,
    created_at: org.created_at.toISOString(),
    suspended: org.suspended,
    capacity: { running: active.org, warm: 0, limits: { running: org.concurrent_sessions } },
    limits: {
      concurrent_sessions: org.concurrent_sessions,
      fork_children: LIMITS.forkChildrenDefault,
      idle_timeout_ms: LIMITS.idleTimeoutMs,
      max_lifetime_ms: LIMITS.maxLifetimeMs,
      max_active_window_ms: LIMITS.continuousLiveMs,
    },
    default_size: DEFAULT_SIZE,
    sizes: SIZE_NAMES.map((name) => ({
      name,
      ...SIZES[name],
      available: baselines.some(({ size }) => size === name),
    })),
  };
}
