/** Lists, reads and ends processes. */
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

/** Running and exited processes, oldest first. */
export async function listProcesses(
  deps: MoveDeps,
  scope: Scope,
  asked: { sessionId: string; signal: AbortSignal },
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
  const call = { method: "GET", path: "processes", signal } as const;
  return (await nodes.guestList(machineIdOf(session), call, LISTS.processes)).items;
}

/**
 * `GET` reads a process. `DELETE` ends it and answers with its final state; without a signal it ends even if the caller
 * leaves. Both can be repeated: the state of an exited process does not change.
 */
export async function callProcess(
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
