import { UsageError } from "../cli-error.ts";

/** A file or directory in a session, as `ID:PATH` names it. */
export interface SessionPath {
  session: string;
  /** As typed, so it may be relative; /workspace where nothing follows the colon. */
  path: string;
}

const WORKSPACE = "/workspace";
const SESSION_PATH = /^([^:/]+):(.*)$/s;

/** Parses `ID:PATH`; undefined for a local path: a text without a colon before its first slash. */
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

/** Parses `ID` or `ID:PATH`; an id alone means /workspace. */
export function parseSessionOrPath(text: string): SessionPath {
  return asSessionPath(text) ?? { session: text, path: WORKSPACE };
}

/** Makes a path absolute: relative paths begin in /workspace. */
export function absolutePath(path: string): string {
  return path.startsWith("/") ? path : `${WORKSPACE}/${path}`;
}
