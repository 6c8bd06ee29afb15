import type { BreakTexts } from "../guest/explain-break.ts";

/** One call for a file or directory of a session. */
export interface FileCall {
  sessionId: string;
  path: string;
  signal: AbortSignal;
}

/** The default directory of list, find and grep. */
export const FILES_ROOT = "/workspace";

/** Errors for a change of files whose outcome is unknown. */
export const CHANGE_BREAK_TEXTS: BreakTexts = {
  paused: "the session was paused during this change of its files; whether it was made is unknown",
  exchanged:
    "the session was paused and woken, or restored, during this change of its files; whether it was made is unknown",
  unknown: "the connection to the session's machine broke; whether its files were changed is unknown",
};
