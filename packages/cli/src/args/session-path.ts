import { UsageError } from "../cli-error.ts";

/** A file or directory in a session, as `ID:PATH` names it. */
export interface SessionPath {
  session: string;
  /** As the human wrote it; /workspace where nothing follows the colon. */
  path: string;
}

const WORKSPACE = "/workspace";
const SESSION_PATH = /^([^:/]+):(.*)$/s;

/** `ID:PATH`, or undefined for what has no colon before its first slash: that is a local path. */
export function asSessionPath(text: string): SessionPath | undefined {
  const match = SESSION_PATH.exec(text);
  return match === null ? undefined : { session: match[1] ?? "", path: match[2] || WORKSPACE };
}

export function parseSessionPath(text: string): SessionPath {
  const found = asSessionPath(text);
  if (found) return found;
  throw new UsageError(
    `"${text}" names no file in a session; expected ID:PATH`,
    "For instance 4x7k2m9q0a1b2c3d4e5f6:notes.txt; ids are listed by: viv ls",
  );
}

/** `ID` or `ID:PATH`; an id alone stands for all of the session's files. */
export function parseSessionOrPath(text: string): SessionPath {
  return asSessionPath(text) ?? { session: text, path: WORKSPACE };
}

/** The path from the root of the guest: relative ones begin in /workspace. */
export function absolutePath(path: string): string {
  return path.startsWith("/") ? path : `${WORKSPACE}/${path}`;
}
