/** Requests that two readers could end at two places, through a door made of this package. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exchange, type StrictProxy, startProxy } from "../test-support/proxy.ts";

let proxy: StrictProxy;
let server: Server;
/** The request lines and headers that the server received. */
const heads: string[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    heads.push(`${request.method} ${request.url}`);
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => response.end(`${request.method} ${request.url} [${body}]`));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy = await startProxy((server.address() as AddressInfo).port);
});

afterAll(async () => {
  await proxy.close();
  server.closeAllConnections();
  server.close();
});

/** A second request, hidden in a body. */
const HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

const post = (headers: string[], body: string) =>
  `POST /seen HTTP/1.1\r\nHost: x\r\n${headers.join("\r\n")}\r\n\r\n${body}`;

describe("a request that two readers could understand differently (P-07)", () => {
  test.each([
    [
      "Content-Length before Transfer-Encoding",
      ["Content-Length: 5", "Transfer-Encoding: chunked"],
      `0\r\n\r\n${HIDDEN}`,
    ],
    [
      "Transfer-Encoding before Content-Length",
      ["Transfer-Encoding: chunked", "Content-Length: 5"],
      `0\r\n\r\n${HIDDEN}`,
    ],
    ["two equal lengths", ["Content-Length: 2", "Content-Length: 2"], "ab"],
    ["two lengths", ["Content-Length: 2", `Content-Length: ${HIDDEN.length}`], HIDDEN],
    ["lengths in a list", ["Content-Length: 2, 2"], "ab"],
    ["a signed length", ["Content-Length: +2"], "ab"],
    ["a length in hexadecimal", ["Content-Length: 0x2"], "ab"],
    ["a length that overflows", ["Content-Length: 18446744073709551618"], "ab"],
    ["a coding that only looks like chunked", ["Transfer-Encoding: xchunked"], `0\r\n\r\n${HIDDEN}`],
    ["chunked before identity", ["Transfer-Encoding: chunked, identity"], `0\r\n\r\n${HIDDEN}`],
    ["chunked twice", ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], `0\r\n\r\n${HIDDEN}`],
    ["chunked after gzip", ["Transfer-Encoding: gzip, chunked"], `0\r\n\r\n${HIDDEN}`],
    ["a space before the colon", ["Transfer-Encoding : chunked"], `0\r\n\r\n${HIDDEN}`],
    ["a vertical tab in the coding", ["Transfer-Encoding: \u000bchunked"], `0\r\n\r\n${HIDDEN}`],
    ["a folded header", ["X-A: 1", " Transfer-Encoding: chunked"], HIDDEN],
    ["a bare line feed", ["X-A: 1\nTransfer-Encoding: chunked"], `0\r\n\r\n${HIDDEN}`],
    ["a bare carriage return", ["X-A: 1\rTransfer-Encoding: chunked"], `0\r\n\r\n${HIDDEN}`],
    ["a NUL in a header", ["X-A: 1\u00002"], ""],
  ])("%s is 400, the connection closes and nothing hidden is heard", async (_, headers, body) => {
    const before = heads.length;
    const answer = await exchange(proxy.port, post(headers, body));
    expect(answer).toMatch(/^HTTP\/1\.1 400 [\s\S]*\r\nConnection: close\r\n/i);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(heads.slice(before).join()).not.toContain("hidden");
    expect(heads.length).toBe(before);
  });

  test.each([
    ["a chunk size that is none", "zz\r\nab\r\n0\r\n\r\n"],
    ["a chunk longer than it says", `2\r\nabc\r\n0\r\n\r\n${HIDDEN}`],
    ["a line feed alone behind a chunk", `2\nab\n0\n\n${HIDDEN}`],
    ["a mebibyte of chunk extension", `2;${"x".repeat(1 << 20)}\r\nab\r\n0\r\n\r\n${HIDDEN}`],
  ])("%s closes the connection without an answer of the server", async (_, body) => {
    const before = heads.length;
    const answer = await exchange(proxy.port, post(["Transfer-Encoding: chunked"], body));
    expect(answer).not.toContain("POST /seen [");
    expect(heads.slice(before).join()).not.toContain("hidden");
  });

  test("bodies in either framing are let through", async () => {
    const counted = await exchange(proxy.port, post(["Connection: close", "Content-Length: 3"], "abc"));
    expect(counted).toMatch(/^HTTP\/1\.1 200 [\s\S]*POST \/seen \[abc\]/);
    const headers = ["Connection: close", "Transfer-Encoding: Chunked"];
    const chunked = post(headers, "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n");
    expect(await exchange(proxy.port, chunked)).toContain("POST /seen [abc]");
  });
});
