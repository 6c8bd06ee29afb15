/** Reads the header Range, as far as this service serves ranges: one range of bytes. Pure. */

export type Wanted = "all" | "none" | { first: number; last: number };

/** `none`: no byte of the file is in the range. Several ranges, and what is no range, count as a request for all. */
export function wantedRange(header: string | undefined, sizeBytes: number): Wanted {
  const [, from = "", to = ""] = /^bytes=([0-9]{0,15})-([0-9]{0,15})$/.exec(header?.trim() ?? "") ?? [];
  if (from === "" && to === "") return "all";
  if (from === "") {
    const count = Math.min(Number(to), sizeBytes);
    return count === 0 ? "none" : { first: sizeBytes - count, last: sizeBytes - 1 };
  }
  const first = Number(from);
  if (to !== "" && Number(to) < first) return "all";
  if (first >= sizeBytes) return "none";
  return { first, last: to === "" ? sizeBytes - 1 : Math.min(Number(to), sizeBytes - 1) };
}
