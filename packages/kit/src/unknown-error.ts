/** Facts about a value that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Whether the value is an error of the system or of Node with one of these codes, such as `ENOENT`. */
export function hasCode(error: unknown, ...codes: string[]): error is Error & { code: string } {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}
