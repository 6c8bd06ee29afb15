import type { SessionRow } from "../sessions/store.ts";

/** Environment variables of every program in the session, besides the machine's own (docs/spec/sessions.md). */
export function environmentOf(session: SessionRow): Record<string, string> {
  return { VIVARIUM_SESSION_ID: session.id, ...session.env };
}
