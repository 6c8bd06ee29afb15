/** Reads and sets a session's daily egress cap. The next tick of the sweep applies it to the machine. */
import type { EgressCap, SessionPatch } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { getReadable, getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { EgressDeps } from "./deps.ts";
import { saveCap } from "./network-store.ts";
import { todayUsage } from "./usage-store.ts";

export async function setCap(
  deps: EgressDeps,
  scope: Scope,
  { id, patch, by }: { id: string; patch: SessionPatch; by: Caller },
): Promise<EgressCap> {
  const session = await getSession(deps.db, scope, id);
  const change = { capBytes: patch.egress_cap_bytes || null, wakeOnHttp: patch.wake_on_http ?? undefined };
  const saved = await deps.db.transaction().execute(async (tx) => {
    const row = await saveCap(tx, session, change);
    const meta = { egress_cap_bytes: row?.egress_cap_bytes, wake_on_http: row?.wake_on_http };
    if (row) await appendEntry(deps, tx, { by, action: "session.update", target: id, sessionId: id, meta });
    return row;
  });
  if (!saved) throw notUsable(await getSession(deps.db, scope, id));
  deps.signals.moved(id);
  // Sends the new `wake_on_http` to the gateway. If the node is away, the sweep does it.
  if (patch.wake_on_http != null) await deps.previewPush.attempt({ session_id: id });
  return await toCap(deps, saved);
}

export async function getCap(deps: Pick<EgressDeps, "db">, scope: Scope, id: string): Promise<EgressCap> {
  return await toCap(deps, await getReadable(deps.db, scope, id));
}

async function toCap({ db }: Pick<EgressDeps, "db">, session: SessionRow): Promise<EgressCap> {
  const { date, bytes } = await todayUsage(db, session.id);
  return {
    session_id: session.id,
    egress_cap_bytes: session.egress_cap_bytes ?? 0,
    today_bytes: bytes,
    date,
    wake_on_http: session.wake_on_http,
  };
}
