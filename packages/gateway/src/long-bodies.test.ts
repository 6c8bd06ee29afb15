/** Bodies longer than any buffer, on connections that are kept: they come whole, and the next request is read. */
import { Agent, createServer, type RequestListener, request, type Server } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { buffer } from "node:stream/consumers";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expose, type Gateway, startGateway } from "../test-support/previews.ts";
import { a, deny, startWorld, type World } from "../test-support/world.ts";

const PREFIX = "127.31.33";
const LONG = Buffer.alloc(2 << 20, "long");
const ROUNDS = 10;

/** Says how much it was sent, or sends much; or answers before it has read anything, and goes. */
const answer: RequestListener = async (message, response) => {
  if (message.url === "/no") {
    response.writeHead(413, { "content-length": 3, connection: "close" }).end("big");
    // The reset that follows takes with it an answer that was not read yet.
    return void setTimeout(() => message.socket.destroy(), 500 * SLOWNESS);
  }
  const { length } = await buffer(message);
  if (message.method === "GET") response.writeHead(200, { "content-length": LONG.length }).end(LONG);
  else response.end(String(length));
};

async function listening(address: string): Promise<Server> {
  // On a slow host a connection may be unused for longer than the usual five seconds.
  const server = createServer({ keepAliveTimeout: 0 }, answer);
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  return server;
}

interface Way {
  host: string;
  address: string;
  port: number;
}

/** One connection; the body is read only after a while. */
function clientOf({ host, address, port }: Way) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const ask = (method: string, body = "") =>
    new Promise<{ body: Buffer; isReused: boolean }>((resolve, reject) => {
      const asked = request({ agent, method, host: address, port, headers: { host }, path: "/" });
      asked.on("error", reject).on("response", async (response) => {
        await sleep(30);
        resolve({ body: await buffer(response), isReused: asked.reusedSocket });
      });
      asked.end(body);
    });
  return { ask, close: () => agent.destroy() };
}

let world: World;
let gateway: Gateway;
let outside: Server;
let guest: Server;
const ways: Record<string, Way> = {};

beforeAll(async () => {
  outside = await listening(`${PREFIX}.80`);
  const { port } = outside.address() as AddressInfo;
  world = await startWorld(PREFIX, { http: port, tls: port });
  world.names.script = (name) => [a(name, `${PREFIX}.80`)];
  await world.apply({ first: deny("good.example") });
  ways["to the outside"] = { host: "good.example", address: world.hosts[0], port: GATEWAY_PORTS.http };

  guest = await listening("127.79.33.1");
  gateway = await startGateway();
  const { address, port: guestPort } = guest.address() as AddressInfo;
  const { host } = expose(gateway, { address, port: guestPort }, { visibility: "public" });
  ways["to a preview"] = { host, address: "127.0.0.1", port: gateway.port };
});
afterAll(async () => {
  await gateway?.previews.close();
  await world?.close();
  outside?.closeAllConnections();
  outside?.close();
  guest?.closeAllConnections();
  guest?.close();
});

describe.each(["to the outside", "to a preview"])("%s", (way) => {
  const asking = async (method: string, body: string, expected: (body: Buffer) => void) => {
    const client = clientOf(ways[way] as Way);
    for (let round = 0; round < ROUNDS; round++) {
      const answered = await client.ask(method, body);
      expected(answered.body);
      expect(answered.isReused).toBe(round > 0);
    }
    client.close();
  };

  test("one long answer after the other comes whole to a client that is slow to read", () =>
    asking("GET", "", (body) => expect(body.equals(LONG)).toBe(true)));

  test("an upload that its server does not want is answered, and its connection ends", async () => {
    const { host, address, port } = ways[way] as Way;
    const socket = connect({ host: address, port });
    const length = 64 << 20;
    socket.on("error", () => {});
    socket.write(`POST /no HTTP/1.1\r\nHost: ${host}\r\nContent-Length: ${length}\r\n\r\n`);
    socket.write(Buffer.alloc(length));
    let heard = "";
    socket.on("data", (bytes: Buffer) => {
      heard += bytes.toString("latin1");
    });
    await new Promise((resolve) => socket.once("close", resolve));
    expect(heard).toMatch(/^HTTP\/1\.1 413 .*big$/s);
  });

  test("one upload after the other is taken", () =>
    asking("POST", LONG.toString(), (body) => expect(body.toString()).toBe(String(LONG.length))));
});
