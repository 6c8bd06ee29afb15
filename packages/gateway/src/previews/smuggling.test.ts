import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  get,
  sendRaw,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

let gateway: Gateway;
let guest: Guest;
let preview: Exposed;

beforeAll(async () => {
  gateway = await startGateway();
  guest = await startGuest((request, response) => {
    let body = "";
    request.on("data", (chunk) => {
      body += chunk;
    });
    request.on("end", () => response.end(`${request.method} ${request.url} [${body}]`));
  });
  preview = expose(gateway, guest, { visibility: "public" });
});

afterAll(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
});

/** A second request, hidden in a body. */
const HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n";

const post = (headers: string[], body: string) =>
  `POST /seen HTTP/1.1\r\nHost: ${preview.host}\r\n${headers.join("\r\n")}\r\n\r\n${body}`;

describe("a request that two readers could understand differently (P-07)", () => {
  test.each([
    ["chunked after gzip", ["Transfer-Encoding: gzip, chunked"], `0\r\n\r\n${HIDDEN}`],
    ["two Origins", ["Origin: http://a.example", "Origin: http://b.example"], ""],
    ["two Origins that are one", ["Origin: http://a.example", "oRIGIN: http://a.example"], ""],
    ["two Referers", ["Referer: http://a.example/", "Referer: http://b.example/"], ""],
    ["two that tell whose page asks", ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"], ""],
  ])("%s is 400, the connection closes and nothing hidden is heard", async (_, headers, body) => {
    const before = guest.heads.length;
    const answer = await sendRaw(gateway.port, post(headers, body));
    expect(answer).toMatch(/^HTTP\/1\.1 400 [\s\S]*\r\nConnection: close\r\n/i);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(guest.heads.slice(before).join()).not.toContain("hidden");
    expect(guest.heads.length).toBe(before);
  });

  test("more than 100 headers, or more than 16 KiB of them, are 400", async () => {
    const many = Array.from({ length: 100 }, (_, i) => `X-${i}: 1`);
    expect(await sendRaw(gateway.port, post(many, ""))).toMatch(/^HTTP\/1\.1 400 /);
    const long = [`X-A: ${"a".repeat(17_000)}`];
    expect(await sendRaw(gateway.port, post(long, ""))).toMatch(/^HTTP\/1\.1 400 /);
  });

  test("98 headers of 15 KiB, and bodies in either framing, are let through", async () => {
    const many = Array.from({ length: 96 }, (_, i) => `X-${i}: ${"a".repeat(140)}`);
    const counted = await sendRaw(
      gateway.port,
      post(["Connection: close", "Content-Length: 3", ...many], "abc"),
    );
    expect(counted).toMatch(/^HTTP\/1\.1 200 [\s\S]*POST \/seen \[abc\]/);
    const chunked = post(
      ["Connection: close", "Transfer-Encoding: Chunked"],
      "2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
    );
    expect(await sendRaw(gateway.port, chunked)).toContain("POST /seen [abc]");
  });
});

describe("an upgrade", () => {
  const head = () =>
    `GET /up HTTP/1.1\r\nHost: ${preview.host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`;

  test.each([
    ["another request right behind it", `\r\n${HIDDEN}`],
    ["a body", `Content-Length: ${HIDDEN.length}\r\n\r\n${HIDDEN}`],
    ["two Origins", "Origin: http://a.example\r\nOrigin: http://b.example\r\n\r\n"],
  ])("with %s is 400", async (_, more) => {
    const before = guest.heads.length;
    expect(await sendRaw(gateway.port, head() + more)).toMatch(/^HTTP\/1\.1 400 /);
    expect(guest.heads.length).toBe(before);
  });

  test.each([
    ["a request of nobody's preview", () => HIDDEN],
    [
      "a request that the guest has not answered",
      () => `GET /first HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`,
    ],
  ])("behind %s ends its connection and no other", async (_, first) => {
    const before = guest.heads.length;
    await sendRaw(gateway.port, `${first()}${head()}\r\n`);
    expect((await get(gateway, preview.host, "/after")).body).toBe("GET /after []");
    expect(guest.heads.slice(before).join()).not.toContain("/up");
  });

  test("that the guest refuses is answered with the refusal, and what came after it is read by nobody", async () => {
    const before = guest.heads.length;
    const socket = connect(gateway.port, "127.0.0.1", () => socket.write(`${head()}\r\n`));
    const answer = await new Promise<string>((resolve) => {
      let text = "";
      socket.on("data", (chunk) => {
        text += chunk;
        socket.write(HIDDEN);
      });
      socket.on("error", () => undefined);
      socket.on("close", () => resolve(text));
    });
    expect(answer).toMatch(/^HTTP\/1\.1 \d\d\d /);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(guest.heads.slice(before).join()).not.toContain("hidden");
  });

  test("to another protocol is an ordinary request", async () => {
    const headers = { connection: "Upgrade, HTTP2-Settings", upgrade: "h2c", "http2-settings": "AAMAAABk" };
    expect((await get(gateway, preview.host, "/plain", { headers })).body).toBe("GET /plain []");
    expect(guest.heads.at(-1)).not.toMatch(/upgrade|http2/i);
  });
});

describe("visitors beside each other", () => {
  test("never get what was another's, whatever is mixed into their connections", async () => {
    const spoiled = [
      post(["Content-Length: 5", "Transfer-Encoding: chunked"], `0\r\n\r\n${HIDDEN}`),
      post(["Content-Length: 100"], "cut"),
      post(["Transfer-Encoding: xchunked"], HIDDEN),
    ];
    let right = 0;
    for (let round = 0; round < 100; round++) {
      const names = Array.from({ length: 10 }, (_, i) => `/v${round}-${i}`);
      const broken = connect(gateway.port, "127.0.0.1");
      broken.on("error", () => undefined);
      broken.write(spoiled[round % spoiled.length] ?? "");
      const bodies = await Promise.all(
        names.map(async (name) => (await get(gateway, preview.host, name)).body),
      );
      broken.destroy();
      right += bodies.filter((body, i) => body === `GET ${names[i]} []`).length;
    }
    expect(right).toBe(1000);
  });

  test("get the answers to pipelined requests in their order", async () => {
    const one = (path: string, more = "") => `GET ${path} HTTP/1.1\r\nHost: ${preview.host}\r\n${more}\r\n`;
    const answer = await sendRaw(gateway.port, one("/1") + one("/2") + one("/3", "Connection: close\r\n"));
    expect(answer.match(/GET \/\d \[\]/g)).toEqual(["GET /1 []", "GET /2 []", "GET /3 []"]);
  });
});
