import fc from "fast-check";
import { expect, test } from "vitest";
import { byWindow, inBlocks, type Span, sameIn, unionOf, without } from "./spans.ts";

const MOST = 60;
const anySpan = fc
  .tuple(fc.nat({ max: MOST }), fc.nat({ max: 20 }))
  .map(([start, bytes]) => ({ start, end: start + bytes }));
const anySpans = fc.array(anySpan, { maxLength: 8 });
const bytesIn = (spans: readonly Span[]) =>
  new Set(spans.flatMap(({ start, end }) => Array.from({ length: end - start }, (_, n) => start + n)));
const differenceOf = (one: Set<number>, other: Set<number>) =>
  new Set([...one].filter((byte) => !other.has(byte)));
const expectSorted = (spans: readonly Span[]) => {
  for (const [n, { start, end }] of spans.entries()) {
    expect(start).toBeLessThan(end);
    if (n > 0) expect((spans[n - 1] as Span).end).toBeLessThan(start);
  }
};

test("a union has the bytes of its ranges, in order and without borders inside", () => {
  fc.assert(
    fc.property(anySpans, (spans) => {
      const union = unionOf(spans);
      expectSorted(union);
      expect(bytesIn(union)).toEqual(bytesIn(spans));
    }),
  );
});

test("ranges without others have the bytes that only the first ones have", () => {
  fc.assert(
    fc.property(anySpans, anySpans, (one, other) => {
      const [kept, taken] = [unionOf(one), unionOf(other)];
      const rest = without(kept, taken);
      expectSorted(rest);
      expect(bytesIn(rest)).toEqual(differenceOf(bytesIn(kept), bytesIn(taken)));
    }),
  );
});

test("ranges in whole blocks have every block of which they had a byte, up to the end of the file", () => {
  fc.assert(
    fc.property(anySpans, fc.nat({ max: MOST }), (spans, size) => {
      const blocks = new Set([...bytesIn(spans)].map((byte) => byte >> 2));
      const expected = [...blocks].flatMap((block) => [0, 1, 2, 3].map((byte) => block * 4 + byte));
      expect(bytesIn(inBlocks(unionOf(spans), 4, size))).toEqual(
        new Set(expected.filter((byte) => byte < size)),
      );
    }),
  );
});

test("windows have the bytes of the ranges, each window once and in order", () => {
  fc.assert(
    fc.property(anySpans, (spans) => {
      const union = unionOf(spans);
      const windows = [...byWindow(union, 8)];
      expect(bytesIn(windows.flatMap((one) => one.spans))).toEqual(bytesIn(union));
      const numbers = windows.map(({ window }) => window);
      expect(numbers).toEqual([...new Set(numbers)].toSorted((one, other) => one - other));
      for (const { window, spans: parts } of windows)
        for (const byte of bytesIn(parts)) expect(byte >> 3).toBe(window);
    }),
  );
});

test("files are the same where they share extents in one place, and nowhere else", () => {
  const anyExtents = fc.array(
    fc.tuple(fc.nat({ max: 5 }), fc.integer({ min: 1, max: 6 }), fc.option(fc.nat({ max: 3 }))),
    { maxLength: 8 },
  );
  /** Extents one behind the other; a place is that of the file, moved by whole hundreds. Those of no hundreds are not shared. */
  const extentsFrom = (parts: [number, number, number | null][]) => {
    let at = 0;
    return parts.map(([gap, bytes, moved]) => {
      const start = at + gap;
      at = start + bytes;
      return { start, bytes, isShared: moved !== 0, place: moved === null ? undefined : start + moved * 100 };
    });
  };
  fc.assert(
    fc.property(anyExtents, anyExtents, (one, other) => {
      const placesOf = (parts: [number, number, number | null][]) =>
        new Set(
          extentsFrom(parts).flatMap(({ start, bytes, place, isShared }) =>
            place === undefined || !isShared
              ? []
              : Array.from({ length: bytes }, (_, n) => `${start + n} ${place + n}`),
          ),
        );
      const expected = [...placesOf(one)]
        .filter((at) => placesOf(other).has(at))
        .map((at) => Number(at.split(" ")[0]));
      const same = sameIn(extentsFrom(one), extentsFrom(other));
      expectSorted(same);
      expect(bytesIn(same)).toEqual(new Set(expected));
    }),
  );
});
