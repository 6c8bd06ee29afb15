/**
 * Turns sessions that are `creating` into live ones. Whoever holds the lease in the row does it: the process that
 * made the row, or after its death whichever finds the lease run out. The node's answer to a repeated start is the
 * same machine, so nothing is started twice.
 */

import { LIMITS } from "@vivarium/contract/api";
import type { MachineStatus } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { untilStored } from "../db/retry.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { NodeError } from "../fleet/node-error.ts";
import { oneLine } from "../http/render-error.ts";
import { PROVISION_LEASE_MS, renewProvisionClaim } from "../leases/provision-claim.ts";
import type { Meter } from "../metrics/meter.ts";
import { releaseSession } from "../moves/release-session.ts";
import { saveMove } from "../moves/save-move.ts";
import { startSpec } from "../moves/start-spec.ts";
import type { SessionSignals } from "../sessions/signals.ts";
import { decide, machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { failureReason } from "./provision-failures.ts";
import { setStatusDetail } from "./store.ts";

const RENEW_MS = PROVISION_LEASE_MS / 3;
const RETRY_MS = 500;
const TOO_LATE = `the machine was not ready within ${LIMITS.provisionMs / 60_000} minutes`;

interface ProvisionDeps {
  db: Database;
  nodes: NodeClient;
  signals: SessionSignals;
  log: Log;
  meter: Meter;
}

export class Provisioner {
  readonly #deps: ProvisionDeps;
  readonly #running = new Map<string, { cancel: AbortController; done: Promise<void> }>();

  constructor(deps: ProvisionDeps) {
    this.#deps = deps;
  }

  /**
   * Starts in the background; a session that is already being worked on here is left alone. `ageMs`: how long ago it was
   * asked for, by the clock that noted it; ours may be another.
   */
  start(session: SessionRow, ageMs: number): void {
    if (this.#running.has(session.id)) return;
    const cancel = new AbortController();
    const askedAt = performance.now() - ageMs;
    const age = () => Math.round(performance.now() - askedAt);
    const done = provision(this.#deps, { session, age }, cancel)
      .catch((err: unknown) =>
        this.#deps.log.error({ err, session_id: session.id }, "provisioning broke off; the sweep takes over"),
      )
      .finally(() => this.#running.delete(session.id));
    this.#running.set(session.id, { cancel, done });
  }

  /** The session is no longer wanted: stop waiting for its machine. */
  cancel(sessionId: string): void {
    this.#running.get(sessionId)?.cancel.abort();
  }

  /** For shutdown: gives up all work and leaves the rows to the next process. */
  async stop(): Promise<void> {
    const all = [...this.#running.values()];
    for (const { cancel } of all) cancel.abort();
    await Promise.all(all.map(({ done }) => done));
  }
}

/** `age`: milliseconds since the create. */
interface Wanted {
  session: SessionRow;
  age: () => number;
}

async function provision(deps: ProvisionDeps, wanted: Wanted, cancel: AbortController): Promise<void> {
  const { session } = wanted;
  const outcome = await Promise.race([
    startWithin(deps, wanted, cancel.signal),
    keepClaim(deps, session.id, cancel),
  ]);
  cancel.abort();
  if (outcome === "cancelled") return;
  crashPoint("create.started");
  if (outcome.state === "running") await hand(deps, wanted, outcome);
  else await failProvisioning(deps, session, outcome.reason ?? "the machine ended while it started");
}

/** A machine, and how long after the create the node was asked for it. */
type Started = MachineStatus & { placeMs: number };
type Outcome = Started | { state: "refused"; reason: string } | "cancelled";

/** Asks the node until it gives a machine or a final no, or the time for provisioning is over. */
async function startWithin(
  deps: ProvisionDeps,
  { session, age }: Wanted,
  cancelled: AbortSignal,
): Promise<Outcome> {
  const remainingMs = LIMITS.provisionMs - age();
  const deadline = AbortSignal.timeout(Math.max(remainingMs, 0));
  const signal = AbortSignal.any([cancelled, deadline]);
  while (!signal.aborted) {
    const placeMs = age();
    try {
      const machine = await deps.nodes.startMachine(machineIdOf(session), startSpec(session), signal);
      return { ...machine, placeMs };
    } catch (error) {
      if (!(error instanceof NodeError)) throw error;
      if (signal.aborted) break;
      if (!isWorthWaiting(error)) {
        deps.log.warn({ err: error, session_id: session.id }, "the node refuses to start a machine");
        return { state: "refused", reason: failureReason(error.code) };
      }
      await setStatusDetail(deps.db, session.id, "waiting_for_capacity").catch(() => undefined);
      await sleep(RETRY_MS, signal);
    }
  }
  return cancelled.aborted ? "cancelled" : { state: "refused", reason: TOO_LATE };
}

/** Renews the lease until told to stop; ends the work when the session is no longer creating. */
async function keepClaim(deps: ProvisionDeps, sessionId: string, cancel: AbortController): Promise<Outcome> {
  while (!cancel.signal.aborted) {
    await sleep(RENEW_MS, cancel.signal);
    if (cancel.signal.aborted) break;
    const isWanted = await renewProvisionClaim(deps.db, sessionId, PROVISION_LEASE_MS).catch(() => true);
    if (!isWanted) cancel.abort();
  }
  return "cancelled";
}

async function hand(deps: ProvisionDeps, { session, age }: Wanted, machine: Started): Promise<void> {
  const timings = { place: machine.placeMs, ...machine.timings, total: age() };
  const move = decide(session, "provisioned");
  const row =
    move &&
    (await untilStored(() => saveMove(deps.db, session.id, move, { timings, guestIp: machine.guest_ip })));
  if (row) deps.meter.recordDuration("create", timings);
  if (row) deps.log.info({ session_id: session.id, timings }, "session live");
  // Destroyed, or handed out by another process: only the first leaves a machine nobody wants, and the sweep knows.
  deps.signals.moved(session.id);
}

/** Ends a session that could not be provisioned. */
export async function failProvisioning(
  deps: ProvisionDeps,
  session: SessionRow,
  reason: string,
): Promise<void> {
  const move = decide(session, "provision_failed");
  const statusReason = oneLine(reason, 200);
  const row = move && (await untilStored(() => saveMove(deps.db, session.id, move, { statusReason })));
  deps.signals.moved(session.id);
  if (!row) return;
  deps.log.warn({ session_id: session.id, reason: statusReason }, "session failed");
  await releaseSession(deps, row);
}

function isWorthWaiting(error: NodeError): boolean {
  return error.failure === "unreachable" || error.failure === "broken" || error.code === "no_capacity";
}
