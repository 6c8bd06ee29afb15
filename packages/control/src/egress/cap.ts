/** The daily cap: control-plane state, which the next tick of the sweep brings to the machine. */
import type { EgressCap, SessionPatch } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import type { Scope } from "../access/principal.ts";
import type { Database } from "../db/pool.ts";
import { getReadable, getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import type { SessionRow } from "../sessions/store.ts";
import { saveCap } from "./network-store.ts";
import { todayUsage } from "./usage-store.ts";

export interface CapDeps {
  db: Database;
  signals: SessionSignals;
  /** Sends the gate of visitors what changed. */
  previewPush: { ensure(): Promise<unknown> };
  log: Log;
}

export async function setCap(
  deps: CapDeps,
  scope: Scope,
  { id, patch }: { id: string; patch: SessionPatch },
): Promise<EgressCap> {
  const session = await getSession(deps.db, scope, id);
  const change = {
    capBytes: patch.egress_cap_bytes || null,
    ...(patch.wake_on_http != null && { wakeOnHttp: patch.wake_on_http }),
  };
  const saved = await saveCap(deps.db, session, change);
  if (!saved) throw notUsable(await getSession(deps.db, scope, id));
  deps.signals.moved(id);
  if (patch.wake_on_http != null) await tellVisitorsGate(deps, id);
  return await toCap(deps, saved);
}

/** So that the next visitor finds it so. A node that is away hears of it from the sweep. */
async function tellVisitorsGate({ previewPush, log }: CapDeps, id: string): Promise<void> {
  await previewPush
    .ensure()
    .catch((err: unknown) => log.debug({ err, session_id: id }, "the sweep tells the node who may wake"));
}

export async function getCap(deps: Pick<CapDeps, "db">, scope: Scope, id: string): Promise<EgressCap> {
  return await toCap(deps, await getReadable(deps.db, scope, id));
}

async function toCap({ db }: Pick<CapDeps, "db">, session: SessionRow): Promise<EgressCap> {
  const { date, bytes } = await todayUsage(db, session.id);
  return {
    session_id: session.id,
    egress_cap_bytes: session.egress_cap_bytes ?? 0,
    today_bytes: bytes,
    date,
    wake_on_http: session.wake_on_http,
  };
}
