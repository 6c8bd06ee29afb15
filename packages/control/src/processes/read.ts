import type { ProcessInfo, ProcessList } from "@vivarium/contract/api";
import { type GuestProcess, LISTS } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import type { NodeClient } from "../fleet/node-client.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { checkName, type NamedProcess, rewordNotFound } from "./name.ts";
import { toProcessInfo } from "./record.ts";
import { ONE_PROCESS } from "./start.ts";

type Asked<T> = T & { signal: AbortSignal };

/** Running and exited processes, oldest first. */
export async function listProcesses(
  deps: MoveDeps,
  scope: Scope,
  asked: Asked<{ sessionId: string }>,
): Promise<ProcessList> {
  const processes = await readGuest(deps, scope, asked, (session, signal) =>
    processesOf(deps.nodes, session, signal),
  );
  return { processes: processes.map(toProcessInfo) };
}

export async function processesOf(
  nodes: NodeClient,
  session: SessionRow,
  signal: AbortSignal,
): Promise<GuestProcess[]> {
  const { items } = await nodes.guestList(
    machineIdOf(session),
    { method: "GET", path: "processes", signal },
    LISTS.processes,
  );
  return items;
}

export async function getProcess(
  deps: MoveDeps,
  scope: Scope,
  asked: Asked<NamedProcess>,
): Promise<ProcessInfo> {
  return await callOne(deps, scope, "GET", asked);
}

/** Ends a process and answers with its final state. The process ends even if the caller leaves. */
export async function endProcess(deps: MoveDeps, scope: Scope, named: NamedProcess): Promise<ProcessInfo> {
  return await callOne(deps, scope, "DELETE", named);
}

/** Both methods can be repeated: the state of an exited process does not change. */
async function callOne(
  deps: MoveDeps,
  scope: Scope,
  method: "GET" | "DELETE",
  asked: NamedProcess & { signal?: AbortSignal },
): Promise<ProcessInfo> {
  await checkName(deps.db, scope, asked);
  const path = `processes/${asked.name}`;
  const process = await readGuest(deps, scope, asked, (session, signal) =>
    deps.nodes
      .guestJson(machineIdOf(session), { method, path, signal }, ONE_PROCESS)
      .catch(rewordNotFound(asked.name)),
  );
  return toProcessInfo(process);
}
