/** The gateway keeps serving others, whatever guests and servers do to their connections; an exception fails the run. */
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildHello, serverNames, toRecords } from "../../test-support/hello.ts";
import { until } from "../../test-support/in-time.ts";
import { a, deny, startWorld, TestServer, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.6";
const ROUNDS = 400;
let world: World;
let turn = 0;

/** Each connection is served in another bad way. */
const outside = new TestServer((_, socket) => {
  turn += 1;
  const answers: (() => void)[] = [
    () => socket.resetAndDestroy(),
    () => socket.end(),
    () =>
      socket.write("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nshort", () => socket.resetAndDestroy()),
    () => socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
    () => socket.end("HTTP/1.1 200 OK\r\nX: a\r\n b\0\r\n\r\n"),
    () => socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"),
    () => socket.end(`HTTP/1.1 200 OK\r\nX: ${"a".repeat(70_000)}\r\n\r\n`),
    () => socket.write("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 999 \r\n\r\nx"),
    () => socket.end("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    () => socket.end("rubbish"),
  ];
  answers[turn % answers.length]?.();
});

/** How long the kernel keeps the end of a guest that is gone without a word. A minute by default, which would be waited for. */
const KEPT_FOR = "/proc/sys/net/ipv4/tcp_fin_timeout";
const keptForBefore = readFileSync(KEPT_FOR);

beforeAll(async () => {
  writeFileSync(KEPT_FOR, "5");
  const port = await outside.start(`${PREFIX}.80`);
  world = await startWorld(PREFIX, { http: port, tls: port });
  world.names.script = (name) => [a(name, `${PREFIX}.80`)];
  await world.apply({ first: deny("good.example") });
});

afterAll(async () => {
  writeFileSync(KEPT_FOR, keptForBefore);
  outside.server.close();
  await world.close();
});

const hello = toRecords(buildHello([serverNames(["good.example"])]));
const head = "Host: good.example\r\n";
const messages: [number, string | Buffer][] = [
  [GATEWAY_PORTS.tls, hello],
  [GATEWAY_PORTS.tls, hello.subarray(0, 30)],
  [GATEWAY_PORTS.http, `GET / HTTP/1.1\r\n${head}\r\n`],
  [GATEWAY_PORTS.http, `GET / HTTP/1.1\r\n${head}\r\nGET / HTTP/1.1\r\nHost: evil\r\n\r\nrubbish`],
  [GATEWAY_PORTS.http, `POST / HTTP/1.1\r\n${head}Content-Length: 100000\r\n\r\nshort`],
  [GATEWAY_PORTS.http, `POST / HTTP/1.1\r\n${head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz`],
  [GATEWAY_PORTS.http, `POST / HTTP/1.1\r\n${head}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n`],
  [GATEWAY_PORTS.http, `GET / HTTP/1.1\r\n${head}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly`],
  [GATEWAY_PORTS.http, `HEAD /\u00ff HTTP/1.1\r\n${head}X: \u00ff\r\n\r\n`],
  [GATEWAY_PORTS.dns, Buffer.from([0, 5, 1, 2, 3])],
];

// A guest that is gone without a word after its end is noticed once the kernel has forgotten it; the server does not read.
test("connections that break on either side at any time end alone, and nothing is left of them", {
  timeout: 150_000 * SLOWNESS,
}, async () => {
  // On a busy host many leave before anything was dialled for them.
  for (let round = 0; round < ROUNDS || turn <= ROUNDS / 4; round += 20) {
    await Promise.all(Array.from({ length: 20 }, (_, at) => misbehave(round + at)));
  }
  while ((await connectionsOutside()) > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  const before = outside.connections;
  const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.tls });
  socket.on("error", () => {});
  socket.write(hello);
  await until(() => outside.connections > before);
  expect(outside.connections).toBeGreaterThan(before);
  socket.destroy();
});

/** Sends one of the messages, and leaves in one of three ways after a while. */
async function misbehave(round: number): Promise<void> {
  const [port, bytes] = messages[round % messages.length] ?? [0, ""];
  const socket = connect({ host: world.hosts[0], port });
  socket.on("error", () => {});
  socket.resume();
  socket.write(bytes);
  await Promise.race([
    once(socket, "connect").catch(() => {}),
    new Promise((resolve) => socket.once("close", resolve)),
  ]);
  await new Promise((resolve) => setTimeout(resolve, (round % 7) * 6));
  leave(socket, round);
}

function leave(socket: Socket, round: number): void {
  if (round % 3 === 0) socket.resetAndDestroy();
  else if (round % 3 === 1) socket.end(() => setTimeout(() => socket.destroy(), 10));
  else socket.destroy();
}

function connectionsOutside(): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  outside.server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
  return promise;
}
