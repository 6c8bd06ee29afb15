/** Until when to wait for the answer of a service that starts, which itself may wait for a command first. */
import { findHolder } from "../supervisor/lock.ts";
import { COMMAND_LIMIT_MS } from "../supervisor/wait-for-lock.ts";
import { WAIT_FOR_START_MS } from "./start-limit.ts";

/** The returned function says whether the time is over. While a command has the lock, the time for a start is not spent. */
export function startDeadline(lockFile: string): () => Promise<boolean> {
  let deadline = performance.now() + WAIT_FOR_START_MS;
  const last = deadline + COMMAND_LIMIT_MS;
  return async () => {
    const holder = await findHolder(lockFile);
    if (holder?.command !== undefined) deadline = Math.min(last, performance.now() + WAIT_FOR_START_MS);
    return performance.now() >= deadline;
  };
}
