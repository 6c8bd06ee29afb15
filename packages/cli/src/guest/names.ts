/**
 * Names of files are bytes. The service writes those that are no UTF-8 as `\xff`, and a backslash that would read as the
 * start of such a piece as `\x5c`.
 */
const LOOKS_ESCAPED = /\\(?=x(?:[89a-f][0-9a-f]|5c))/g;

/** A name as it is, in the words of the service's files. */
export function toServicePath(name: string): string {
  return name.replaceAll(LOOKS_ESCAPED, "\\x5c");
}
