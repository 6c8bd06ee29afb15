import { expect, test } from "vitest";
import { VivariumError } from "./errors.ts";
import { retryDelayMs } from "./retry.ts";

const once = { repeatable: false };
const repeatable = { repeatable: true };

test("waits as long as the service asks, for any request", () => {
  const error = new VivariumError("session_not_live", "", { status: 409, retryable: true, retryAfterS: 2 });
  expect(retryDelayMs(error, once, 0)).toBe(2000);
  expect(retryDelayMs(error, repeatable, 2)).toBe(2000);
});

test("never repeats what the service calls final", () => {
  const error = new VivariumError("validation", "", { status: 400 });
  expect(retryDelayMs(error, repeatable, 0)).toBeUndefined();
});

test("leaves very long waits to the caller", () => {
  const error = new VivariumError("rate_limited", "", { status: 429, retryable: true, retryAfterS: 3600 });
  expect(retryDelayMs(error, repeatable, 0)).toBeUndefined();
});

test.each(["connection_failed", "connection_refused"])(
  "repeats after %s only what may be carried out twice, with growing pauses",
  (code) => {
    const error = new VivariumError(code, "");
    expect(retryDelayMs(error, once, 0)).toBeUndefined();
    expect([0, 1, 2].map((attempt) => retryDelayMs(error, repeatable, attempt))).toEqual([200, 400, 800]);
  },
);

test("treats a proxy's own 502 like a lost connection", () => {
  const error = new VivariumError("error", "", { status: 502 });
  expect(retryDelayMs(error, once, 0)).toBeUndefined();
  expect(retryDelayMs(error, repeatable, 0)).toBe(200);
});

test("takes a proxy's Retry-After for no promise that nothing has started", () => {
  const error = new VivariumError("error", "", { status: 504, retryable: true, retryAfterS: 1 });
  expect(retryDelayMs(error, once, 0)).toBeUndefined();
  expect(retryDelayMs(error, repeatable, 0)).toBe(1000);
});

test("waits as a proxy asks that limits how many requests it passes on", () => {
  const error = new VivariumError("error", "", { status: 429, retryable: true, retryAfterS: 1 });
  expect(retryDelayMs(error, once, 0)).toBe(1000);
});

test("does not repeat a stream that broke", () => {
  expect(retryDelayMs(new VivariumError("stream_interrupted", ""), repeatable, 0)).toBeUndefined();
});
