import { describe, expect, test } from "vitest";
import { type RequestHead, readHead } from "./http-request.ts";

const head = (overrides: Partial<RequestHead> = {}): RequestHead => ({
  method: "GET",
  url: "/a?b",
  httpVersion: "1.1",
  rawHeaders: ["Host", "example.com"],
  ...overrides,
});
const withHost = (...hosts: string[]) =>
  readHead(head({ rawHeaders: hosts.flatMap((host) => ["Host", host]) }));

describe("the host of a request", () => {
  test.each(["example.com", "EXAMPLE.com.", "example.com:80"])("is that of Host: %s", (host) => {
    expect(withHost(host)).toMatchObject({ host: "example.com", path: "/a?b" });
  });

  test("may be an address, which the policy then judges", () => {
    expect(withHost("1.2.3.4")).toMatchObject({ host: "1.2.3.4" });
  });

  test("may stand in the target too, when it is the same one", () => {
    expect(readHead(head({ url: "http://Example.com/a" }))).toMatchObject({
      host: "example.com",
      path: "/a",
    });
    expect(readHead(head({ url: "http://example.com?q" }))).toMatchObject({ path: "/?q" });
    expect(readHead(head({ url: "http://evil.tld/a" }))).toMatchObject({ refused: "host_mismatch" });
  });

  test.each([
    "allowed@evil.tld",
    "example.com@evil.tld",
    "example.com:8080",
    "example.com:",
    "example.com/evil",
    "example.com evil.tld",
    "example.com,evil.tld",
    "[::1]",
    "127.1",
    "localhost",
    "",
  ])("is not %j", (host) => {
    expect(withHost(host)).toMatchObject({ refused: "malformed" });
  });

  test("is there exactly once", () => {
    expect(readHead(head({ rawHeaders: ["Accept", "*/*"] }))).toMatchObject({ refused: "no_name" });
    expect(withHost("example.com", "evil.tld")).toMatchObject({ refused: "malformed" });
    expect(withHost("example.com", "example.com")).toMatchObject({ refused: "malformed" });
  });
});

describe("a request that two readers could read in two ways is refused", () => {
  test.each<[string, string[]]>([
    ["length and coding", ["Content-Length", "5", "Transfer-Encoding", "chunked"]],
    ["h2c", ["Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AA"]],
    ["two upgrades", ["Connection", "Upgrade", "Upgrade", "websocket, h2c"]],
  ])("%s", (_, headers) => {
    expect(readHead(head())).toMatchObject({ host: "example.com" });
    expect(readHead(head({ rawHeaders: ["Host", "example.com", ...headers] }))).toMatchObject({
      refused: "malformed",
    });
  });

  test("chunks under HTTP/1.0, CONNECT, and targets that are no path", () => {
    const chunked = ["Host", "example.com", "Transfer-Encoding", "chunked"];
    expect(readHead(head({ rawHeaders: chunked }))).toMatchObject({ host: "example.com" });
    expect(readHead(head({ rawHeaders: chunked, httpVersion: "1.0" }))).toMatchObject({
      refused: "malformed",
    });
    expect(readHead(head({ method: "CONNECT", url: "example.com:80" }))).toMatchObject({
      refused: "malformed",
    });
    for (const url of [
      "*",
      "evil.tld:80",
      "https://example.com/",
      "ftp://example.com/",
      "http://a@example.com/",
    ]) {
      expect(readHead(head({ url })), url).toMatchObject({ refused: "malformed" });
    }
  });
});
