/** File names as the service spells them: `\xff` for a byte that is not UTF-8, `\x5c` for an ambiguous backslash. */
const LOOKS_ESCAPED = /\\(?=x(?:[89a-f][0-9a-f]|5c))/g;

/** Escapes the backslashes of a name that the service would take for an escaped byte. */
export function toServicePath(name: string): string {
  return name.replaceAll(LOOKS_ESCAPED, "\\x5c");
}
