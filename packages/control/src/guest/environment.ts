import type { SessionRow } from "../sessions/store.ts";

/** What every program in the session is started with, on top of what the machine has by itself (wire.md 9). */
export function environmentOf(session: SessionRow): Record<string, string> {
  return { VIVARIUM_SESSION_ID: session.id, ...session.env };
}
