/** Percent escapes in paths. Pure, and without imports, as the gateway has it on the way of every request. */

/**
 * Whether the escapes are valid UTF-8. Lenient readers take overlong forms for the character itself, so `%c0%ae` is a dot for
 * them, and other bytes for a character of Latin-1 or for nothing.
 */
export function hasUtf8Escapes(path: string): boolean {
  try {
    decodeURIComponent(path);
    return true;
  } catch {
    return false;
  }
}
