import { ERRORS } from "@vivarium/contract/api/errors";
import { expect, test } from "vitest";
import { errorFromNetwork, errorFromResponse } from "./errors.ts";

function answer(code: string, status: number, headers: Record<string, string> = {}) {
  return new Response(JSON.stringify({ error: "a sentence", code }), { status, headers });
}

test("every code of the table is retryable exactly when the table says so and Retry-After is sent", async () => {
  for (const [code, row] of Object.entries(ERRORS)) {
    if (code === "error") continue;
    const error = await errorFromResponse(answer(code, row.status, { "retry-after": "7" }));
    expect([code, error.retryable]).toEqual([code, row.retryable]);
    expect(error).toMatchObject({ code, status: row.status, retryAfterS: 7, message: "a sentence" });
  }
});

test("a usually retryable code without Retry-After is final", async () => {
  const error = await errorFromResponse(answer("unavailable", 503));
  expect(error).toMatchObject({ retryable: false, retryAfterS: undefined });
});

test("an unknown code with Retry-After is retryable", async () => {
  expect(await errorFromResponse(answer("tea_break", 503, { "retry-after": "3" }))).toMatchObject({
    code: "tea_break",
    retryable: true,
  });
});

test("older strings become the codes of the table", async () => {
  expect((await errorFromResponse(answer("unauthorized", 401))).code).toBe("unauthenticated");
});

test("keeps the request id", async () => {
  const error = await errorFromResponse(answer("internal", 500, { "x-request-id": "req_1" }));
  expect(error.requestId).toBe("req_1");
});

test("a page that is not ours becomes the fallback code", async () => {
  const error = await errorFromResponse(new Response("<h1>Bad Gateway</h1>", { status: 502 }));
  expect(error).toMatchObject({ code: "error", status: 502, retryable: false });
});

test("finds the refused connection under the layers that fetch puts around it", () => {
  const refused = Object.assign(new Error("connect"), { code: "ECONNREFUSED" });
  const wrapped = new TypeError("fetch failed", { cause: new AggregateError([refused]) });
  expect(errorFromNetwork(wrapped, "http://h")).toMatchObject({ code: "connection_refused", status: 0 });
  expect(errorFromNetwork(new TypeError("other"), "http://h").code).toBe("connection_failed");
});
