/**
 * Ends sessions whose detached command has ended. A `destroy_on_completion` session that is paused during its only
 * command loses the listener of the command. After the wake, the guest is asked whether the command still runs. If the
 * guest does not answer, the session's lease ends the session.
 */

import { GuestCommands } from "@vivarium/contract/guest";
import { NodeError } from "../fleet/node-error.ts";
import { expireDetachedCommand, listWithDetachedCommand } from "../leases/detached-command.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { UpkeepDeps } from "./deps.ts";

const ASK_MS = 5_000;
const ANSWER = { schema: GuestCommands, limitBytes: 4 * 1024 };

/** Asks the guests, and makes a session due for destruction if its command has ended. */
export async function endAfterDetachedCommands(deps: UpkeepDeps): Promise<void> {
  const sessions = await listWithDetachedCommand(deps.db);
  await Promise.all(
    sessions.map(async (session) => {
      if (await hasCommandEnded(deps, session)) await expireDetachedCommand(deps.db, session);
    }),
  );
}

async function hasCommandEnded({ nodes, log }: UpkeepDeps, session: SessionRow): Promise<boolean> {
  const call = { method: "GET", path: "commands", signal: AbortSignal.timeout(ASK_MS) } as const;
  try {
    return (await nodes.guestJson(machineIdOf(session), call, ANSWER)).going_on === 0;
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    log.debug({ session_id: session.id, reason: error.message }, "a guest cannot be asked for its command");
    return false;
  }
}
