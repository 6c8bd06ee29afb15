import type { SessionRow } from "../sessions/store.ts";

/** Variables of every program in the session, in addition to those of the machine (docs/spec/sessions.md). */
export function environmentOf(session: SessionRow): Record<string, string> {
  return { VIVARIUM_SESSION_ID: session.id, ...session.env };
}
