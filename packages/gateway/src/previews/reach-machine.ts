/** Finds the machine behind a route, waking its session if necessary, or else the page that says why it has none. */
import type { GatewayTables, PreviewRoute, WakeOutcome } from "@vivarium/contract/gateway";
import { endsWithin, sleep } from "@vivarium/kit/clock";
import { type Backend, backendOf, routeOf } from "./lookup.ts";
import { GONE, NOT_FOUND, notWoken, type Page, UNAVAILABLE, WAKING } from "./pages.ts";
import type { SharedWakes } from "./shared-wakes.ts";
import type { TablesInForce } from "./start.ts";
import type { VisitorFlow } from "./visitor-flows.ts";

/** How long the tables may lag behind the outcome of a wake, which comes on another connection. */
const TABLES_LAG_MS = 3_000;
const RETRY_AFTER_S = 5;

export async function reachMachine(
  { tables, wakes, holdMs }: { tables: TablesInForce; wakes: SharedWakes; holdMs: number },
  admitted: PreviewRoute,
  flow: VisitorFlow,
): Promise<Backend | Page> {
  const deadline = Date.now() + holdMs;
  /** Until then a machine that is missing in the tables may still appear. */
  let patientUntil = 0;
  while (Date.now() < deadline && !flow.visitor.destroyed) {
    const found = findMachine(tables.current(), admitted);
    if (typeof found === "object") return found;
    const isPatient = Date.now() < patientUntil;
    if (found === "absent" && !isPatient && patientUntil > 0) return UNAVAILABLE;
    if (found === "asleep" && !isPatient) {
      const wake = wakes.request(admitted.session_id);
      if (!(await endsWithin(Math.max(0, deadline - Date.now()), wake))) return WAKING;
      const outcome = await wake;
      if (outcome.result === "refused") return refusal(outcome);
      patientUntil = Date.now() + TABLES_LAG_MS;
    } else {
      if (patientUntil === 0) patientUntil = Date.now() + TABLES_LAG_MS;
      await nextTables(tables, Math.min(patientUntil, deadline));
    }
  }
  return WAKING;
}

/** A route of another version counts as missing, since the gate has admitted the visitor to this version only. */
function findMachine(
  tables: GatewayTables | undefined,
  { session_id, port, version }: PreviewRoute,
): Backend | Page | "asleep" | "absent" {
  const route = tables && routeOf(tables, { sessionId: session_id, port });
  if (tables === undefined || route?.version !== version) return NOT_FOUND;
  if (route.state === "gone") return GONE;
  if (route.state === "unavailable") return UNAVAILABLE;
  if (route.state === "paused") return route.wake_on_http ? "asleep" : NOT_FOUND;
  return backendOf(tables, session_id) ?? "absent";
}

function refusal(outcome: Extract<WakeOutcome, { result: "refused" }>): Page {
  if (outcome.status === 404) return NOT_FOUND;
  return outcome.status === 410 ? GONE : notWoken(outcome.retry_after_s ?? RETRY_AFTER_S);
}

/** Resolves when the tables change, or at the deadline. */
async function nextTables(tables: TablesInForce, deadline: number): Promise<void> {
  const over = new AbortController();
  const end = tables.subscribe(() => over.abort());
  await sleep(Math.max(0, deadline - Date.now()), over.signal);
  end();
}
