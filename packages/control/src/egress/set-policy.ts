/** Replaces a session's egress policy. It is in force when the call answers, or before a paused guest runs again. */
import type { EgressPolicy } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import { isApplied } from "./apply.ts";
import type { EgressDeps } from "./deps.ts";
import { normalPolicy, type StoredPolicy } from "./entry.ts";
import { saveDesiredNetwork } from "./network-store.ts";
import { currentLimit } from "./prepare.ts";

export async function setPolicy(
  deps: EgressDeps,
  scope: Scope,
  { id, policy, by }: { id: string; policy: EgressPolicy; by: Caller },
): Promise<StoredPolicy> {
  const egress = normalPolicy(policy, deps.ownHosts, "allow");
  let stored: SessionRow | undefined;
  return await whenFree(deps, id, async () => {
    const session = await getSession(deps.db, scope, id);
    if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
    if (isNetworkFixed(session.op)) return BUSY;
    // Stored once. A later write by another call wins, as if this call had ended before it.
    stored ??= await store(deps, session, { egress, by });
    if (!stored) return BUSY;
    const desired = stored.network_generation > session.network_generation ? stored : session;
    return (await isApplied(deps, desired)) ? egress : BUSY;
  });
}

async function store(
  deps: EgressDeps,
  session: SessionRow,
  { egress, by }: { egress: StoredPolicy; by: Caller },
): Promise<SessionRow | undefined> {
  const limitBytes = session.state === "live" ? await currentLimit(deps.db, session) : undefined;
  const row = await deps.db.transaction().execute(async (tx) => {
    const saved = await saveDesiredNetwork(tx, session, { egress, limitBytes });
    const meta = { mode: egress.mode, allowed: egress.allow.length };
    const entry = { by, action: "egress.set", target: session.id, sessionId: session.id, meta } as const;
    if (saved) await appendEntry(deps, tx, entry);
    return saved;
  });
  if (row) deps.signals.moved(session.id);
  return row;
}
