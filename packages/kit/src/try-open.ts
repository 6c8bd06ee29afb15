/**
 * Whether this process may open a device or file for reading and writing. It is opened: root passes every check of mode
 * bits, and a container or a security module may still refuse it.
 */
import { closeSync, constants, openSync, statSync } from "node:fs";

export interface OpenFailure {
  /** Code of the failed open, such as EACCES. */
  code: string;
  /** Mode and owner, as `0600 of 0:36`. Absent: the file cannot be looked at. */
  rights?: string;
}

/** Undefined if it can be opened. `open` and `rightsOf` are replaced in tests. */
export function tryOpen(
  file: string,
  { open = openAndClose, rightsOf = rights } = {},
): OpenFailure | undefined {
  try {
    open(file);
    return undefined;
  } catch (error) {
    const { code = "an unknown error" } = error as NodeJS.ErrnoException;
    return { code, rights: rightsOf(file) };
  }
}

function openAndClose(file: string): void {
  closeSync(openSync(file, constants.O_RDWR));
}

function rights(file: string): string | undefined {
  const found = statSync(file, { throwIfNoEntry: false });
  return found && `0${(found.mode & 0o7777).toString(8)} of ${found.uid}:${found.gid}`;
}
