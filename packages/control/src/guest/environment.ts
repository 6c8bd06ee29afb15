import { openVariables, type SecretDeps } from "../secrets/variables.ts";
import type { SessionRow } from "../sessions/store.ts";

/** Environment of the programs of a session, and the values in it that the audit log masks. */
export interface Environment {
  env: Record<string, string>;
  secrets: readonly string[];
}

/** The variables of every program in the session, besides the machine's own (docs/spec/sessions.md). */
export async function environmentOf(deps: SecretDeps, session: SessionRow): Promise<Environment> {
  const { env, secrets } = await openVariables(deps, session);
  return {
    env: { VIVARIUM_SESSION_ID: session.id, ...env, ...secrets },
    secrets: Object.values(secrets),
  };
}
