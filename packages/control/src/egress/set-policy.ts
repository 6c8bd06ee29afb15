/** Replaces a session's egress policy: in force when the call answers, or before its guest runs again. */
import type { EgressPolicy } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type ApplyDeps, applyNetwork } from "./apply.ts";
import type { OwnHosts } from "./entry.ts";
import { saveWish } from "./network-store.ts";
import { normalPolicy, type StoredPolicy } from "./policy.ts";
import { limitNow } from "./prepare.ts";

export type SetPolicyDeps = ApplyDeps & { signals: SessionSignals; ownHosts: OwnHosts };

export async function setPolicy(
  deps: SetPolicyDeps,
  scope: Scope,
  { id, policy }: { id: string; policy: EgressPolicy },
): Promise<StoredPolicy> {
  const egress = normalPolicy(policy, deps.ownHosts, "allow");
  let stored: SessionRow | undefined;
  return await whenFree(deps, id, async () => {
    const session = await getSession(deps.db, scope, id);
    if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
    if (isNetworkFixed(session.op)) return BUSY;
    // Written once: whoever wrote after us has the last word, and ours was in force before.
    stored ??= await store(deps, session, egress);
    if (!stored) return BUSY;
    const wish = stored.network_generation > session.network_generation ? stored : session;
    return (await isInForce(deps, wish)) ? egress : BUSY;
  });
}

async function store(
  deps: SetPolicyDeps,
  session: SessionRow,
  egress: StoredPolicy,
): Promise<SessionRow | undefined> {
  const limitBytes = session.state === "live" ? await limitNow(deps.db, session) : undefined;
  const row = await saveWish(deps.db, session, { egress, limitBytes });
  if (row) deps.signals.moved(session.id);
  return row;
}

/** False: the machine is being exchanged, or put to rest, under the call; then decide anew. */
async function isInForce(deps: SetPolicyDeps, wish: SessionRow): Promise<boolean> {
  if (wish.state === "paused") return true;
  if (wish.network_applied >= wish.network_generation) return true;
  try {
    await applyNetwork(deps, wish);
    return true;
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    const now = await getSession(deps.db, { orgId: wish.org_id, projectId: null }, wish.id);
    if (now.state !== "live" || now.incarnation !== wish.incarnation || isNetworkFixed(now.op)) return false;
    deps.log.warn({ session_id: wish.id, reason: error.message }, "an egress policy waits for the node");
    throw apiErrorOfOperation(error);
  }
}
