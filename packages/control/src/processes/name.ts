/** Refuses malformed names of processes, and words the error for unknown ones. */
import { PROCESS_NAME_PATTERN } from "@vivarium/contract/api";
import { GUEST_ERRORS } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { NodeError } from "../fleet/node-error.ts";
import { getSession } from "../sessions/get.ts";

export interface NamedProcess {
  sessionId: string;
  name: string;
}

/** Refuses a malformed name without waking the session. */
export async function checkName(db: Queries, scope: Scope, { sessionId, name }: NamedProcess): Promise<void> {
  if (PROCESS_NAME_PATTERN.test(name)) return;
  await getSession(db, scope, sessionId);
  throw noSuchProcess(name);
}

/** Rewords `process_not_found`, so that it contains the process's name. Other errors are rethrown. */
export function rewordNotFound(name: string): (error: unknown) => never {
  return (error) => {
    throw error instanceof NodeError && error.code === "process_not_found"
      ? noSuchProcess(name, error)
      : error;
  };
}

function noSuchProcess(name: string, cause?: NodeError): ApiError {
  return new ApiError("not_found", `name: ${GUEST_ERRORS.process_not_found.text}: ${name}`, { cause });
}
