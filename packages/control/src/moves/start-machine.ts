/** Starts a machine of a session on its node, with all that the node keeps in memory alone. */
import type { MachineStatus, StartSpec } from "@vivarium/contract/node";
import { withSnapshot } from "../archive-records/fetch.ts";
import { putInForceBeforeStart } from "../connections/put-in-force.ts";
import { openStateKey } from "../secrets/state-key.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { MoveDeps } from "./deps.ts";

type StartDeps = Pick<MoveDeps, "db" | "nodes" | "keyring" | "objects" | "localObjects">;

/** Repeating the call gives the same answer. A saved state that the node does not have is fetched first. */
export async function startMachineOf(
  deps: StartDeps,
  session: SessionRow,
  { machineId, spec, signal }: { machineId: string; spec: StartSpec; signal: AbortSignal },
): Promise<MachineStatus> {
  await putInForceBeforeStart(deps, session, signal);
  const stateKey = await openStateKey(deps.keyring, session);
  return await withSnapshot(deps, spec.snapshot_id, signal, () =>
    deps.nodes.startMachine(machineId, spec, signal, stateKey),
  );
}

/**
 * Throws if the session's state key does not open. Call it before the claim of an operation that needs the key: a
 * key-encryption key that is not loaded then leaves no operation behind.
 */
export async function requireStateKey(
  { keyring }: Pick<MoveDeps, "keyring">,
  session: SessionRow,
): Promise<void> {
  await openStateKey(keyring, session);
}
