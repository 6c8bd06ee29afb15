/** Arguments of one command: the interface allows 1,024, Linux 128 KiB each. */
const ARGUMENTS = { items: 500, bytes: 48 * 1024 };

/** Paths in groups, each small enough for one command. */
export function inPortions(paths: readonly string[]): Generator<string[]> {
  return inGroups(paths, (path) => Buffer.byteLength(path), ARGUMENTS);
}

/** Items in groups within limits; an item that is larger than the limit is alone. */
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
