import { expect, test } from "vitest";
import { formatBytes } from "./bytes.ts";
import { formatAge, formatAhead } from "./time.ts";
import { renderTiming } from "./timing.ts";

test("stages are printed in the order in which they happen, sums last", () => {
  expect(renderTiming({ total: 9, stopped: 4, handshake: 3, warm: 1, queue: 0, load: 2 })).toBe(
    "queue 0 ms, load 2 ms, handshake 3 ms, warm 1 ms, stopped 4 ms, total 9 ms",
  );
});

test.each([
  [0, "0 B"],
  [1023, "1023 B"],
  [1024, "1.0 KiB"],
  [1536, "1.5 KiB"],
  [10 * 1024, "10 KiB"],
  [1024 ** 2 - 1, "1.0 MiB"],
  [671_088_640, "640 MiB"],
  [3.4 * 1024 ** 3, "3.4 GiB"],
])("%d bytes are %s", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test.each([
  [-1, "0s"],
  [59_999, "59s"],
  [60_000, "1m"],
  [119_000, "1m59s"],
  [7_199_000, "1h59m"],
  [7_200_000, "2h"],
  [90 * 86_400_000 - 1, "89d23h"],
])("%d ms ahead are printed in two figures: %s", (ms, text) => {
  expect(formatAhead(ms)).toBe(text);
});

test("an age is printed in one figure", () => {
  expect([59_999, 60_000, 7_199_000, 90_000_000].map(formatAge)).toEqual(["59s", "1m", "1h", "1d"]);
});
