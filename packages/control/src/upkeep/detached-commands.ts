/**
 * The one command of a destroy_on_completion session that a pause broke off goes on with the wake, and nobody listens to it:
 * its guest is asked whether it still runs. A guest that does not answer is left to the lease.
 */

import { GuestCommands } from "@vivarium/contract/guest";
import { NodeError } from "../fleet/node-error.ts";
import { expireDetachedCommand, listWithDetachedCommand } from "../leases/detached-command.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

const ASK_MS = 5_000;
const ANSWER = { schema: GuestCommands, limitBytes: 4 * 1024 };

/** Sessions whose command has ended are due for destruction at once. */
export async function endAfterDetachedCommands(deps: UpkeepDeps): Promise<void> {
  const sessions = await listWithDetachedCommand(deps.db);
  await Promise.all(
    sessions.map(async (session) => {
      if (await hasEnded(deps, session)) await expireDetachedCommand(deps.db, session);
    }),
  );
}

async function hasEnded({ nodes, log }: UpkeepDeps, session: SessionRow): Promise<boolean> {
  const call = { method: "GET", path: "commands", signal: AbortSignal.timeout(ASK_MS) } as const;
  try {
    return (await nodes.guestJson(machineIdOf(session), call, ANSWER)).going_on === 0;
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    log.debug({ session_id: session.id, reason: error.message }, "a guest cannot be asked for its command");
    return false;
  }
}
