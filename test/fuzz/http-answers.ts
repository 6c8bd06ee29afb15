/** HTTP answers that are nearly proper, and requests that they may be given to. */
import type { Random } from "../chaos/random.ts";
import { mutate } from "./mutations.ts";

const VERSIONS = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "RTSP/1.0"];
const FINAL = ["200", "200", "200", "204", "206", "304", "404", "500", "999"];
const STRANGE = ["000", "099", "99", "100", "101", "103", "199", "600", "1000", "-20"];
const PHRASES = ["OK", "OK", "", "\u0001", "caf\u00e9", "a\0b", "\u007f", "\t", "x".repeat(300)];
const UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
const HINT = "HTTP/1.1 103 Early Hints\r\n\r\n";
const CONSENT = `HTTP/1.1 101 OK\r\n${UPGRADE}\r\n`;
const HEADERS = [
  "Content-Length: 4",
  "Content-Length: 4",
  "Content-Length: 0",
  "Content-Length: 9",
  "Content-Length: 4, 4",
  "Content-Length: 99999999999999999999",
  "Transfer-Encoding: chunked",
  "Transfer-Encoding: chunked",
  "Transfer-Encoding: gzip, chunked",
  "Transfer-Encoding: identity",
  'Content-Disposition: attachment; filename="\u00e6\u0097\u00a5"',
  "Connection: close",
  "Connection: keep-alive, content-length, x-a",
  "Keep-Alive: timeout=0",
  "Trailer: X-After",
  "Upgrade: h2c",
  "Upgrade: websocket",
  "Date: now",
  "Expect: 100-continue",
  "Set-Cookie: a=1; Domain=example",
  'Clear-Site-Data: "*"',
  "X-A:",
  "X-A: \u00ff\u0080",
  "X-\u00e9: 1",
  "X A: 1",
  ": none",
  " folded",
  `X-Long: ${"a".repeat(20_000)}`,
  `X-Longer: ${"a".repeat(70_000)}`,
  Array.from({ length: 2_200 }, (_, i) => `X-${i}: `).join("\r\n"),
];
const BODIES = [
  "body",
  "body",
  "",
  "4\r\nbody\r\n0\r\n\r\n",
  "4\r\nbody\r\n0\r\n\r\n",
  "4;a=b\r\nbody\r\n0\r\nX-After: \u0001\r\n\r\n",
  `4;${"x".repeat(20_000)}\r\nbody\r\n0\r\n\r\n`,
  "4\r\nbodyy\r\n0\r\n\r\n",
  "zz\r\n",
  "ffffffffffffffff\r\nbody",
];

/** Latin-1: a byte is what stands there. */
export function someAnswer(random: Random): Buffer {
  if (random.below(6) === 0) return Buffer.from(HINT.repeat(random.pick([0, 16, 17, 17, 18])) + CONSENT);
  const interim = random.pick([0, 0, 0, 0, 1, 2, 16, 17, 18]);
  const parts = Array.from({ length: interim }, () => headOf(random, random.pick(["100", "102", "103"]), 1));
  const status = random.pick(random.below(3) === 0 ? STRANGE : FINAL);
  parts.push(headOf(random, status, 4) + random.pick(BODIES));
  if (random.below(8) === 0) parts.push(headOf(random, "200", 1) + random.pick(BODIES));
  const bytes = Buffer.from(parts.join(""), "latin1");
  return random.below(2) === 0 ? mutate(random, bytes) : bytes;
}

function headOf(random: Random, status: string, most: number): string {
  const headers = Array.from({ length: random.below(most) }, () => `${random.pick(HEADERS)}\r\n`).join("");
  const upgrade = status === "101" && random.below(2) === 0 ? UPGRADE : "";
  return `${random.pick(VERSIONS)} ${status} ${random.pick(PHRASES)}\r\n${upgrade}${headers}\r\n`;
}

interface Target {
  host: string;
  path: string;
}

const LAST = "Connection: close\r\n";
const BODY = "\r\n1\r\na\r\n0\r\n\r\n";

/** A request that ends its connection, two of which the second ends it, or one for a WebSocket. */
export function someRequest(random: Random, { host, path }: Target): string {
  const asks = (method: string, more: string) => `${method} ${path} HTTP/1.1\r\nHost: ${host}\r\n${more}`;
  return random.pick([
    asks("GET", `${LAST}\r\n`),
    asks("GET", `${LAST}\r\n`),
    asks("HEAD", `${LAST}\r\n`),
    asks("GET", `${UPGRADE}\r\n`),
    asks("GET", `Sec-WebSocket-Version: 13\r\n${UPGRADE}\r\n`),
    asks("POST", `Content-Length: 4\r\n${LAST}\r\nbody`),
    asks("PUT", `Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n${LAST}${BODY}`),
    asks("GET", "\r\n") + asks("GET", `${LAST}\r\n`),
    asks("GET", `${LAST}\r\n`).replace("HTTP/1.1", "HTTP/1.0"),
  ]);
}
