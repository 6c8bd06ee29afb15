import { describe, expect, test } from "vitest";
import { headerPairs, withoutHopByHop } from "./headers.ts";
import { findBadFraming } from "./strict-request.ts";

describe("a request that two readers could read in two ways is refused", () => {
  test.each<[string, string[]]>([
    ["length and coding", ["Content-Length", "5", "Transfer-Encoding", "chunked"]],
    ["two lengths", ["Content-Length", "5", "Content-Length", "5"]],
    ["two codings", ["Transfer-Encoding", "chunked", "Transfer-Encoding", "identity"]],
    ["a coding besides chunked", ["Transfer-Encoding", "gzip, chunked"]],
    ["an unknown coding", ["Transfer-Encoding", "xchunked"]],
    ["a length that is no number", ["Content-Length", "+5"]],
  ])("%s", (_, headers) => {
    expect(findBadFraming("1.1", headerPairs(headers))).toBeTypeOf("string");
  });

  test("chunks under HTTP/1.0", () => {
    const chunked = headerPairs(["Transfer-Encoding", "chunked"]);
    expect(findBadFraming("1.1", chunked)).toBeUndefined();
    expect(findBadFraming("1.0", chunked)).toBeTypeOf("string");
  });
});

test("what is between neighbours stays there; what says where a request ends and whom it is for never goes", () => {
  const rawHeaders = [
    ...["Host", "example.com", "Connection", "close, X-Mine, Host, Content-Length"],
    ...["X-Mine", "1", "X-Other", "2", "Content-Length", "3", "Keep-Alive", "5", "Proxy-Authorization", "x"],
  ];
  expect(withoutHopByHop(headerPairs(rawHeaders)).flat()).toEqual([
    "Host",
    "example.com",
    "X-Other",
    "2",
    "Content-Length",
    "3",
  ]);
});
