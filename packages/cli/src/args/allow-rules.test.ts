import { expect, test } from "vitest";
import { collectAllow, toAllow } from "./allow-rules.ts";

const allow = (...texts: string[]) =>
  toAllow(texts.reduce((before, text) => collectAllow(text, before), collectAllow(texts.shift() ?? "")));

test("a rule has methods, and one or more paths", () => {
  expect(allow(" get,POST  /v1/* /v2/items ")).toEqual({
    methods: ["GET", "POST"],
    paths: ["/v1/*", "/v2/items"],
  });
});

test("rules of the same methods, or of the same paths, are joined", () => {
  expect(allow("GET /a", "GET /b")).toEqual({ methods: ["GET"], paths: ["/a", "/b"] });
  expect(allow("GET /a", "POST /a")).toEqual({ methods: ["GET", "POST"], paths: ["/a"] });
});

test("rules that would together allow more than each of them says are refused", () => {
  expect(() => allow("GET /a", "POST /b")).toThrow("would also allow GET /b");
  expect(() => allow("GET,POST /a", "GET /b")).toThrow("would also allow POST /b");
  expect(allow("GET,POST /a", "GET,POST /b")).toEqual({ methods: ["GET", "POST"], paths: ["/a", "/b"] });
});

test.each(["", "GET", "/v1/*", "/v1/a /v1/b"])("%j is not a rule", (text) => {
  expect(() => collectAllow(text)).toThrow("expected methods and paths");
});
