/**
 * Turns `creating` sessions into live ones. The process with the claim in the row does it: at first the one that made
 * the row, and after its death any that finds the claim lapsed. Starts are idempotent on the node, so no machine is
 * started twice.
 */

import { LIMITS } from "@vivarium/contract/api";
import type { MachineStatus } from "@vivarium/contract/node";
import { repeatAfter, sleep } from "@vivarium/kit/clock";
import { crashPoint } from "@vivarium/kit/crash-point";
import { untilStored } from "../db/retry.ts";
import { NodeError } from "../fleet/node-error.ts";
import { PROVISION_LEASE_MS, renewProvisionClaim } from "../leases/provision-claim.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { failSession } from "../moves/release-session.ts";
import { moveSession } from "../moves/save-move.ts";
import { startMachineOf } from "../moves/start-machine.ts";
import { startSpec } from "../moves/start-spec.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { failureReason } from "./provision-failures.ts";
import { setStatusDetail } from "./store.ts";

const RENEW_MS = PROVISION_LEASE_MS / 3;
const RETRY_MS = 500;
const TOO_LATE = `the machine was not ready within ${LIMITS.provisionMs / 60_000} minutes`;

type ProvisionDeps = Pick<
  MoveDeps,
  "db" | "nodes" | "keyring" | "objects" | "localObjects" | "signals" | "auditKey" | "log" | "meter"
>;

export class Provisioner {
  readonly #deps: ProvisionDeps;
  readonly #running = new Map<string, { cancel: AbortController; done: Promise<void> }>();

  constructor(deps: ProvisionDeps) {
    this.#deps = deps;
  }

  /**
   * Provisions in the background, unless this process already does. `ageMs` is the time since the create. It is an age,
   * not an instant, because the clocks of database and process may differ.
   */
  start(session: SessionRow, ageMs: number): void {
    if (this.#running.has(session.id)) return;
    const cancel = new AbortController();
    const askedAt = performance.now() - ageMs;
    const age = () => Math.round(performance.now() - askedAt);
    const done = provision(this.#deps, { session, age }, cancel)
      .catch((err: unknown) =>
        this.#deps.log.error({ err, session_id: session.id }, "provisioning failed; the sweep takes over"),
      )
      .finally(() => this.#running.delete(session.id));
    this.#running.set(session.id, { cancel, done });
  }

  /** Stops provisioning a session that is no longer wanted. */
  cancel(sessionId: string): void {
    this.#running.get(sessionId)?.cancel.abort();
  }

  /** For shutdown: aborts all work. Another process takes the rows over. */
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
  if (outcome.state === "running") await markLive(deps, wanted, outcome);
  else {
    const reason = outcome.reason ?? "the machine ended while it started";
    await untilStored(() => failSession(deps, session, "provision_failed", reason));
  }
}

/** A machine. `placeMs` is the time from the create to the call that started it. */
type Started = MachineStatus & { placeMs: number };
type Outcome = Started | { state: "refused"; reason: string } | "cancelled";

/** Retries until the node starts the machine or refuses for good, or the time limit is over. */
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
      const spec = startSpec(session);
      const machine = await startMachineOf(deps, session, { machineId: machineIdOf(session), spec, signal });
      return { ...machine, placeMs };
    } catch (error) {
      if (!(error instanceof NodeError)) throw error;
      if (signal.aborted) break;
      if (await removeOfEarlierBoot(deps, session, error)) continue;
      if (!isWorthWaiting(error)) {
        deps.log.warn({ err: error, session_id: session.id }, "the node refuses to start a machine");
        return { state: "refused", reason: failureReason(error) };
      }
      await setStatusDetail(deps.db, session.id, "waiting_for_capacity").catch(() => undefined);
      await sleep(RETRY_MS, signal);
    }
  }
  return cancelled.aborted ? "cancelled" : { state: "refused", reason: TOO_LATE };
}

/**
 * Removes a machine that the host's restart ended before the session was live: nothing has run in it, so the session gets
 * another. Returns whether there was one.
 */
async function removeOfEarlierBoot(
  { nodes }: ProvisionDeps,
  session: SessionRow,
  { code }: NodeError,
): Promise<boolean> {
  if (code !== "machine_gone") return false;
  const id = machineIdOf(session);
  const machines = await nodes.listMachines().catch(() => []);
  if (machines.find((machine) => machine.machine_id === id)?.cause !== "host_restart") return false;
  return await nodes.deleteMachine(id).then(
    () => true,
    () => false,
  );
}

/** Renews the claim until aborted. Aborts the work when the session is no longer creating. */
async function keepClaim(deps: ProvisionDeps, sessionId: string, cancel: AbortController): Promise<Outcome> {
  await repeatAfter(RENEW_MS, cancel.signal, async () => {
    const isWanted = await renewProvisionClaim(deps.db, sessionId).catch(() => true);
    if (!isWanted) cancel.abort();
  });
  return "cancelled";
}

async function markLive(deps: ProvisionDeps, { session, age }: Wanted, machine: Started): Promise<void> {
  const timings = { place: machine.placeMs, ...machine.timings, total: age() };
  const details = { timings, machine };
  const row = await untilStored(() => moveSession(deps, session, "provisioned", details));
  if (row) deps.meter.recordDuration("create", timings);
  if (row) deps.log.info({ session_id: session.id, timings }, "session live");
  // Without a row, the session was destroyed, and the sweep removes the machine, or another process made it live.
  deps.signals.moved(session.id);
}

function isWorthWaiting(error: NodeError): boolean {
  if (error.failure === "unreachable" || error.failure === "broken") return true;
  return error.code === "no_capacity" || error.code === "archive_interrupted";
}
