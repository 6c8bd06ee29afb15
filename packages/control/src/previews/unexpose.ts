/** Closes a port. Open connections through it are dead when the call answers. Wakes nothing. */
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { Queries } from "../db/pool.ts";
import { applyForCaller } from "../egress/apply.ts";
import { saveExposedPorts } from "../egress/prepare.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { PreviewDeps } from "./deps.ts";
import { ensurePushed } from "./expose.ts";
import { deleteRoute, findRoute, listExposed, lockSession, publicFields } from "./store.ts";

/** Returns whether the port was exposed. */
export async function unexposePort(
  deps: PreviewDeps,
  scope: Scope,
  { id, port, by }: { id: string; port: number; by: Caller },
): Promise<boolean> {
  const outcome = await whenFree(deps, id, async () => {
    const session = await getSession(deps.db, scope, id);
    if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
    if (!(await findRoute(deps.db, session.id, port))) return { session, isRemoved: false };
    if (isNetworkFixed(session.op)) return BUSY;
    return await deps.db.transaction().execute((tx) => remove(deps, tx, session, { port, by }));
  });
  // Cuts visitors off first. Also when nothing was removed: this call may repeat one whose answer was lost.
  await ensurePushed(deps);
  const { session, isRemoved } = outcome;
  if (isRemoved && session.state === "live") await applyForCaller(deps, session);
  return isRemoved;
}

async function remove(
  deps: PreviewDeps,
  tx: Queries,
  { id, state, incarnation }: SessionRow,
  { port, by }: { port: number; by: Caller },
) {
  const session = await lockSession(tx, id);
  if (session?.state !== state || session.incarnation !== incarnation) return BUSY;
  if (isNetworkFixed(session.op)) return BUSY;
  const removed = await deleteRoute(tx, id, port);
  if (!removed) return { session, isRemoved: false };
  const desired = await saveExposedPorts(tx, session, await listExposed(tx, id));
  await appendEvent(tx, eventOf(desired, "preview.unexposed", publicFields(removed)));
  const entry = { action: "preview.unexpose", target: id, sessionId: id, meta: { port } } as const;
  await appendEntry(deps, tx, { by, ...entry });
  return { session: desired, isRemoved: true };
}
