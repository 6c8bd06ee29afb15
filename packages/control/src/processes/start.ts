import type { ProcessInfo, ProcessStart } from "@vivarium/contract/api";
import { GuestProcess, ITEM_BYTES, type ProcessSpec } from "@vivarium/contract/guest";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import type { CommandLog } from "../audit/command-log.ts";
import { setMayKeepAlive } from "../deadlines/keep-alive.ts";
import { changeGuest } from "../guest/call-guest.ts";
import { environmentOf } from "../guest/environment.ts";
import type { BreakTexts } from "../guest/explain-break.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import { toProcessInfo } from "./record.ts";

export const ONE_PROCESS = { schema: GuestProcess, limitBytes: ITEM_BYTES };

export type ProcessDeps = MoveDeps & { commandLog: CommandLog };

/** Starts a process that outlives the request. It keeps running when the caller leaves. */
export async function startProcess(
  deps: ProcessDeps,
  scope: Scope,
  { sessionId, input, by }: { sessionId: string; input: ProcessStart; by: Caller },
): Promise<ProcessInfo> {
  const started = await changeGuest(deps, scope, { sessionId, texts: TEXTS }, async (session, signal) => {
    // Written before the start, so that no process that keeps the session from becoming idle is missed.
    if (input.keep_alive) await setMayKeepAlive(deps.db, session);
    const { env, secrets } = await environmentOf(deps, session);
    const body: ProcessSpec = {
      name: input.name,
      argv: input.command,
      ...(input.cwd != null && { cwd: input.cwd }),
      env,
      keep_alive: input.keep_alive ?? false,
    };
    const call = { method: "POST", path: "processes", body, signal } as const;
    const process = await deps.nodes.guestJson(machineIdOf(session), call, ONE_PROCESS);
    deps.commandLog
      .started({ session, by, kind: "process", argv: input.command, secrets })
      .ended({ exit_code: process.exit_code });
    return process;
  });
  return toProcessInfo(started);
}

const TEXTS: BreakTexts = {
  paused: "the session was paused as the process was started; its list of processes tells whether it was",
  exchanged:
    "the session was paused and woken, or restored, as the process was started; its list of processes tells whether it was",
  unknown:
    "the connection to the session's machine broke; its list of processes tells whether the process was started",
};
