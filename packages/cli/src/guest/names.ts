/**
 * Names of files are bytes. The service writes other bytes than UTF-8 as `\xff`, and an ambiguous backslash as `\x5c`.
 */
const LOOKS_ESCAPED = /\\(?=x(?:[89a-f][0-9a-f]|5c))/g;

/** The service's spelling of a name. */
export function toServicePath(name: string): string {
  return name.replaceAll(LOOKS_ESCAPED, "\\x5c");
}
