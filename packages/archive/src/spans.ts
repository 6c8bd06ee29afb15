/** Sorted lists of byte ranges that do not touch each other: which parts of a file are worth reading. */
import type { Extent } from "@vivarium/kit/extents";

/** From byte `start` up to, but not including, byte `end`. */
export interface Span {
  start: number;
  end: number;
}

/** The union of ranges in any order. */
export function unionOf(spans: readonly Span[]): Span[] {
  const union: Span[] = [];
  for (const { start, end } of spans.toSorted((one, other) => one.start - other.start)) {
    const last = union.at(-1);
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else if (end > start) union.push({ start, end });
  }
  return union;
}

/** The parts of the first list that are not in the second one. */
export function without(spans: readonly Span[], taken: readonly Span[]): Span[] {
  const rest: Span[] = [];
  let at = 0;
  for (const span of spans) {
    let { start } = span;
    while (at < taken.length && (taken[at] as Span).end <= start) at++;
    for (let next = at; next < taken.length && (taken[next] as Span).start < span.end; next++) {
      const { start: from, end } = taken[next] as Span;
      if (from > start) rest.push({ start, end: from });
      start = Math.max(start, end);
    }
    if (start < span.end) rest.push({ start, end: span.end });
  }
  return rest;
}

/**
 * The ranges that two files of one file system share, in the same place of the device: their bytes are the same. An equal place
 * alone is not enough, because a file system above others may have two devices.
 */
export function sameIn(one: readonly Extent[], other: readonly Extent[]): Span[] {
  const same: Span[] = [];
  let next = 0;
  for (const mine of one) {
    while (next < other.length && endOf(other[next] as Extent) <= mine.start) next++;
    for (let at = next; at < other.length && (other[at] as Extent).start < endOf(mine); at++) {
      const theirs = other[at] as Extent;
      if (!mine.isShared || !theirs.isShared) continue;
      if (mine.place === undefined || theirs.place === undefined) continue;
      if (mine.place - mine.start !== theirs.place - theirs.start) continue;
      same.push({
        start: Math.max(mine.start, theirs.start),
        end: Math.min(endOf(mine), endOf(theirs)),
      });
    }
  }
  return unionOf(same);
}

/** Widens every range to whole blocks, and cuts them off at `size`. */
export function inBlocks(spans: readonly Span[], blockBytes: number, size: number): Span[] {
  const whole = spans.map(({ start, end }) => ({
    start: Math.floor(start / blockBytes) * blockBytes,
    end: Math.min(Math.ceil(end / blockBytes) * blockBytes, size),
  }));
  return unionOf(whole);
}

/** The ranges that lie in each window of a file, for the windows that have any. */
export function* byWindow(
  spans: readonly Span[],
  windowBytes: number,
): Generator<{ window: number; spans: Span[] }> {
  let current: { window: number; spans: Span[] } | undefined;
  for (const { start, end } of spans) {
    for (let from = start; from < end; ) {
      const window = Math.floor(from / windowBytes);
      const to = Math.min(end, (window + 1) * windowBytes);
      if (current?.window !== window) {
        if (current) yield current;
        current = { window, spans: [] };
      }
      current.spans.push({ start: from, end: to });
      from = to;
    }
  }
  if (current) yield current;
}

export const spanOf = ({ start, bytes }: Extent): Span => ({ start, end: start + bytes });

const endOf = ({ start, bytes }: Extent) => start + bytes;
