/** Splits lists into groups that fit one command or one request. */
/** Most paths and bytes of one command: the API allows 1,024 arguments, Linux 128 KiB for each. */
const ARGUMENTS = { items: 500, bytes: 48 * 1024 };

/** Splits paths into groups, each small enough for one command. */
export function inPortions(paths: readonly string[]): Generator<string[]> {
  return inGroups(paths, (path) => Buffer.byteLength(path), ARGUMENTS);
}

/** Splits items into groups within the limits; an item above the byte limit gets a group of its own. */
export function* inGroups<T>(
  items: Iterable<T>,
  bytesOf: (item: T) => number,
  most: { items: number; bytes: number },
): Generator<T[]> {
  let group: T[] = [];
  let bytes = 0;
  for (const item of items) {
    const size = bytesOf(item);
    if (group.length > 0 && (group.length === most.items || bytes + size > most.bytes)) {
      yield group;
      group = [];
      bytes = 0;
    }
    group.push(item);
    bytes += size;
  }
  if (group.length > 0) yield group;
}
