/**
 * Brings the machines of a session in line with its row: continues its own machine, if that is stopped, and removes its
 * other machines. This is an operation, so that no other operation starts or stops a machine meanwhile.
 */

import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { isRefusal } from "../fleet/node-error.ts";
import type { Operation } from "../operations/operations.ts";
import { untilAnswered } from "../operations/until-answered.ts";
import { isActive, machineIdOf, sessionIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { newerMachine } from "./catch-up.ts";
import type { MoveDeps } from "./deps.ts";

/** Does nothing while another operation is in flight, which decides about the machines itself. */
export async function settleSession(deps: MoveDeps, session: SessionRow): Promise<void> {
  const claimed = await deps.operations.claim(session, "settle");
  if (claimed) await deps.operations.run(claimed, (op) => settleMachines(deps, op));
}

export async function settleMachines(deps: MoveDeps, op: Operation): Promise<void> {
  const wanted = isActive(op.session.state) ? machineIdOf(op.session) : undefined;
  try {
    const isInLine = await untilAnswered(op.signal, () => removeOthers(deps, op.session, wanted));
    if (wanted && isInLine)
      await untilAnswered(op.signal, (signal) => deps.nodes.continueMachine(wanted, signal));
  } catch (error) {
    if (!isRefusal(error)) throw error;
    // The reconciler marks the session as failed if its machine has really ended.
    deps.log.warn(
      { err: apiErrorOfOperation(error), session_id: op.session.id },
      "a machine could not be continued",
    );
  }
  await deps.operations.clear(op);
}

/** Deletes all machines but `wanted`. False, and deletes none, if the row is older: the next reconcile moves it. */
async function removeOthers({ nodes }: MoveDeps, session: SessionRow, wanted?: string): Promise<boolean> {
  const all = await nodes.listMachines();
  const machines = all.filter(({ machine_id: id }) => sessionIdOf(id) === session.id);
  if (newerMachine(session, machines)) return false;
  const others = machines.map(({ machine_id: id }) => id).filter((id) => id !== wanted);
  await Promise.all(others.map((id) => nodes.deleteMachine(id)));
  return true;
}
