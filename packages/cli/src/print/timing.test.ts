import { expect, test } from "vitest";
import { formatBytes } from "./bytes.ts";
import { renderTiming } from "./timing.ts";

test("stages are told in the order in which they happen, the total last", () => {
  expect(renderTiming({ total: 9, handshake: 3, warm: 1, queue: 0, load: 2 })).toBe(
    "queue 0 ms, load 2 ms, handshake 3 ms, warm 1 ms, total 9 ms",
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
