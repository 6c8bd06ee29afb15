import type { BrokenOffWords } from "../guest/broken-off.ts";

/** Where list, find and grep look when they are not told. */
export const FILES_ROOT = "/workspace";

/** What is told of a change to files whose end was not seen. */
export const CHANGE_WORDS: BrokenOffWords = {
  paused: "the session was paused during this change of its files; whether it was made is unknown",
  exchanged:
    "the session was paused and woken, or restored, during this change of its files; whether it was made is unknown",
  unknown: "the connection to the session's machine broke; whether its files were changed is unknown",
};
