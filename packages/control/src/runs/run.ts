/**
 * Runs code in a session made for it, and destroys the session. The session's row carries a lease: when this process
 * dies, the sweep destroys the session as soon as the lease runs out.
 */
import { LIMITS, type RunPhase, type RunRequest, type RunResult } from "@vivarium/contract/api";
import type { ExecCall } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import type { z } from "zod";
import type { Caller } from "../access/caller.ts";
import { type Principal, scopeOf } from "../access/principal.ts";
import { resolveProject } from "../access/resolve-project.ts";
import { ApiError } from "../errors/api-error.ts";
import { createAttempt, emitIfRefused } from "../events/refusals.ts";
import { type CollectedExec, collect, outputFields } from "../exec/collect.ts";
import { execCall, explainCommandBreak, openExec } from "../exec/open-exec.ts";
import type { OutputQuota } from "../exec/output-quota.ts";
import { apiErrorOfPreparation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { environmentOf } from "../guest/environment.ts";
import { waitForLive } from "../guest/wait-for-live.ts";
import { leaseFromNow, leaseSession } from "../leases/lease.ts";
import { destroySession } from "../moves/destroy.ts";
import { machineIdOf } from "../sessions/state.ts";
import { findSessionById, type SessionRow } from "../sessions/store.ts";
import { admitSession, type SessionSettings } from "../starts/admit.ts";
import { failureCode } from "../starts/provision-failures.ts";
import { type StartSettings, startFrom } from "../starts/start-from.ts";
import { lockVolume } from "../volumes/attach.ts";
import { INSTALL_ENV, LANGUAGE_COMMANDS } from "./commands.ts";
import type { RunDeps } from "./deps.ts";

const RUN_LEASE_MS = 30_000;
const RENEW_MS = 10_000;

type ParsedRun = z.output<typeof RunRequest>;

export async function runCode(
  deps: RunDeps,
  principal: Principal,
  { body, ...called }: { body: ParsedRun } & CalledBy,
): Promise<RunResult> {
  const askedAt = performance.now();
  const session = await admitRun(deps, principal, body, called.by);
  deps.provisioner.start(session, performance.now() - askedAt);
  const over = new AbortController();
  const lease = keepLease(deps, session.id, over.signal);
  try {
    const live = await waitForRun(deps, principal, session, called.signal);
    return await runIn(deps, live, body, called);
  } finally {
    over.abort();
    await lease;
    await destroySession(deps, session).catch((err: unknown) =>
      deps.log.warn(
        { err, session_id: session.id },
        "a run's session could not be destroyed; the sweep does it",
      ),
    );
  }
}

async function admitRun(
  deps: RunDeps,
  principal: Principal,
  body: ParsedRun,
  by: Caller,
): Promise<SessionRow> {
  const admit = () =>
    deps.db.transaction().execute(async (tx) => {
      const volume = await lockVolume(tx, scopeOf(principal), body.volume_id);
      const projectId = await resolveProject(tx, principal, body.project_id);
      const { start, refusal } = await startFrom(deps, tx, scopeOf(principal), body);
      const session = await admitSession(deps, tx, principal, {
        settings: { ...settingsOf(body, projectId, start), ...volume },
        by,
      });
      if (refusal) throw refusal;
      return session;
    });
  return await emitIfRefused(deps.db, createAttempt(principal, body.project_id, "run"), admit);
}

async function waitForRun(
  deps: RunDeps,
  principal: Principal,
  session: SessionRow,
  signal: AbortSignal,
): Promise<SessionRow> {
  const gone = new Promise<never>((_resolve, reject) => {
    signal.addEventListener("abort", () => reject(new Error("the client is gone")), { once: true });
  });
  gone.catch(() => undefined);
  try {
    const ready = waitForLive(deps, scopeOf(principal), session.id, LIMITS.provisionMs);
    return (await Promise.race([ready, gone])).session;
  } catch (cause) {
    if (!(cause instanceof ApiError)) throw cause;
    const now = await findSessionById(deps.db, session.id);
    if (now?.state === "destroyed")
      throw new ApiError("session_ended", "the run's session was destroyed", { cause });
    const reason = now?.status_reason;
    const message = `no machine for this run: ${reason ?? "it was not ready in time"}`;
    throw new ApiError(failureCode(reason), message, { cause });
  }
}

interface CalledBy {
  signal: AbortSignal;
  by: Caller;
  reservation: OutputQuota;
}

/** Installs, then runs, under one timeout for both. */
async function runIn(
  deps: RunDeps,
  session: SessionRow,
  body: ParsedRun,
  called: CalledBy,
): Promise<RunResult> {
  const language = LANGUAGE_COMMANDS[body.language];
  const packages = body.dependencies ?? [];
  const deadline = performance.now() + (body.timeout_ms ?? LIMITS.execTimeoutDefaultMs);
  const remainingMs = () => Math.max(1, Math.round(deadline - performance.now()));
  // A run has no variables and no secrets of its own.
  const { env, secrets } = await environmentOf(deps, session);
  const step = (command: string[], more: Record<string, string> = {}) =>
    runStep(deps, session, execCall({ command, timeout_ms: remainingMs() }, { ...env, ...more }), {
      ...called,
      secrets,
    });

  await putCode(deps, session, language.file, body.code, called.signal);
  let installMs: number | undefined;
  if (packages.length > 0) {
    const startedAt = performance.now();
    const install = await step(language.install(packages), INSTALL_ENV);
    installMs = Math.round(performance.now() - startedAt);
    if (install.end.exit_code !== 0) return resultOf(session, install, "install", installMs);
  }
  const run = await step(language.run);
  return resultOf(session, run, run.end.timed_out ? "run" : "done", installMs);
}

async function runStep(
  deps: RunDeps,
  session: SessionRow,
  call: ExecCall,
  { reservation, ...by }: CalledBy & { secrets: readonly string[] },
): Promise<CollectedExec> {
  const limitBytes = LIMITS.execOutputBytes;
  const frames = await openExec(deps, session, { ...call, output_limit_bytes: limitBytes }, by);
  try {
    return await collect(frames, { limitBytes, reservation });
  } catch (cause) {
    throw await explainCommandBreak(deps, session, cause);
  }
}

function resultOf(session: SessionRow, step: CollectedExec, phase: RunPhase, installMs?: number): RunResult {
  const { timings } = session;
  return {
    session_id: session.id,
    ...outputFields(step),
    // The machine was loaded from its template's baseline, which counts as a restore.
    ...(timings && { restore_ms: (timings.load ?? 0) + (timings.handshake ?? 0) }),
    // The code never started when the installer ended the run.
    ...(phase === "install" && { duration_ms: 0 }),
    phase,
    ...(installMs !== undefined && { install_ms: installMs }),
  };
}

async function putCode(
  deps: RunDeps,
  session: SessionRow,
  file: string,
  code: string,
  signal: AbortSignal,
): Promise<void> {
  await deps.nodes.putFile(machineIdOf(session), file, Buffer.from(code), signal).catch((error: unknown) => {
    throw error instanceof NodeError ? apiErrorOfPreparation(error) : error;
  });
}

async function keepLease({ db, leasesKept }: RunDeps, sessionId: string, over: AbortSignal): Promise<void> {
  leasesKept.add(sessionId);
  while (!over.aborted) {
    await sleep(RENEW_MS, over);
    if (!over.aborted) await leaseSession(db, sessionId, RUN_LEASE_MS).catch(() => undefined);
  }
  leasesKept.delete(sessionId);
}

function settingsOf(body: ParsedRun, projectId: string | null, start: StartSettings): SessionSettings {
  return {
    ...start,
    origin: "run",
    project_id: projectId,
    secrets: {},
    on_pty_detach: "pause",
    paused_ttl_ms: LIMITS.pausedTtlDefaultMs,
    destroy_on_completion: true,
    command_capture: body.command_capture ?? "executable",
    wake_on_http: true,
    destroy_after: leaseFromNow(RUN_LEASE_MS),
  };
}
