/** Arguments of one command: the interface allows 1,024, Linux 128 KiB each. */
const PATHS_AT_ONCE = 500;
const BYTES_AT_ONCE = 48 * 1024;

/** Paths in groups, each small enough for one command. */
export function* inPortions(paths: readonly string[]): Generator<string[]> {
  let portion: string[] = [];
  let bytes = 0;
  for (const path of paths) {
    const size = Buffer.byteLength(path);
    if (portion.length > 0 && (portion.length === PATHS_AT_ONCE || bytes + size > BYTES_AT_ONCE)) {
      yield portion;
      portion = [];
      bytes = 0;
    }
    portion.push(path);
    bytes += size;
  }
  if (portion.length > 0) yield portion;
}
