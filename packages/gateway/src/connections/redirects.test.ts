/** Redirects of a bound origin: the gateway follows none, and no other server gets the credential. */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { signServer } from "@vivarium/kit/certificates";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ask2,
  askOver,
  type BoundWorld,
  connection,
  HOST,
  SECRET,
  startBoundWorld,
  TestOrigin,
  valuesIn,
} from "../../test-support/bound-world.ts";
import { inTime } from "../../test-support/in-time.ts";
import { a, deny } from "../../test-support/world.ts";

const PREFIX = "127.31.57";
const OTHER = "second.example";
const EVIL = "evil.example";
/** Bound, with a server for plain HTTP at its address. */
const PLAIN = "plain.example";
const OTHER_SECRET = "other-secret-0123456789";
const ADDRESSES: Record<string, string> = {
  [HOST]: `${PREFIX}.80`,
  [OTHER]: `${PREFIX}.81`,
  [EVIL]: `${PREFIX}.82`,
  [PLAIN]: `${PREFIX}.83`,
};
let world: BoundWorld;
/** The origin of another Connection of the session, and a server that no Connection is for. */
let other: TestOrigin;
let evil: TestOrigin;
/** Headers of requests over plain HTTP to the bound host. */
const plain: string[][] = [];
const plainServer = createServer((request, response) => {
  plain.push(request.rawHeaders);
  response.end("plain");
});

beforeAll(async () => {
  world = await startBoundWorld(PREFIX);
  const start = async (host: string) => {
    const origin = new TestOrigin(await signServer(world.roots, { host, lifeMs: 3_600_000 * 24 }), "both");
    await origin.start(ADDRESSES[host] ?? "", world.outside.tls);
    return origin;
  };
  [other, evil] = [await start(OTHER), await start(EVIL)];
  world.names.script = (name) => [a(name, ADDRESSES[name] ?? "")];
  await world.apply({ first: deny(HOST, OTHER, EVIL, PLAIN) });
  const second = { name: "second", host: OTHER, header: { name: "X-Key", value: OTHER_SECRET } };
  await world.bind(
    {},
    { connections: [connection(), connection(second), connection({ name: "plain", host: PLAIN })] },
  );
});

beforeEach(() => {
  world.bound.renewLease();
  for (const { received } of [world.origin, other, evil]) received.length = 0;
  other.connections = evil.connections = plain.length = 0;
});

afterAll(async () => {
  plainServer.close();
  other.close();
  evil.close();
  await world.close();
});

const LOCATIONS = [
  `https://${EVIL}/take`,
  `https://${OTHER}/take`,
  `http://${HOST}/take`,
  `http://${PLAIN}/take`,
  `https://${HOST}/elsewhere`,
];

describe.each(LOCATIONS)("a redirect to %s", (location) => {
  test.each([301, 302, 303, 307, 308])(
    "with %i is the guest's answer, and one request reached one server",
    async (status) => {
      world.origin.answer = (_request, response) =>
        void response.writeHead(status, { Location: location }).end("moved");
      const session = await world.session2();
      const requests = [
        () => world.ask("/a", { method: "POST", body: "the body" }),
        () => ask2(session, { ":path": "/a", ":method": "POST" }, "the body"),
      ];
      for (const ask of requests) {
        world.origin.received.length = 0;
        expect(await ask()).toMatchObject({ status, headers: { location }, body: "moved", isWhole: true });
        expect(world.origin.received).toMatchObject([{ url: "/a", method: "POST", body: "the body" }]);
      }
      session.destroy();
      expect([other.connections, evil.connections]).toEqual([0, 0]);
    },
  );
});

describe("the guest that follows a redirect", () => {
  test("to a server that is not bound sends what it has: no credential", async () => {
    const socket = await world.open({ servername: EVIL, ca: world.roots.certificatePem });
    const reply = await askOver(socket, "/take", { method: "POST", body: "x", headers: { Host: EVIL } });
    expect(reply.status).toBe(200);
    expect(evil.received).toMatchObject([{ url: "/take", body: "x" }]);
    expect(evil.text()).not.toMatch(/authorization|x-key|secret/i);
    socket.destroy();
  });

  test("to another Connection's origin gets the credential of that one alone", async () => {
    const socket = await world.open({ servername: OTHER });
    expect((await askOver(socket, "/take", { headers: { Host: OTHER } })).status).toBe(200);
    expect(valuesIn(other.received[0] as never, "x-key")).toEqual([OTHER_SECRET]);
    expect(other.text()).not.toContain(SECRET.slice(0, 10));
    socket.destroy();
  });

  test("to a bound host over plain HTTP gets no credential", async () => {
    plainServer.listen(world.outside.http, ADDRESSES[PLAIN]);
    await once(plainServer, "listening");
    const socket = connect({ host: world.hosts[0], port: GATEWAY_PORTS.http });
    const chunks: Buffer[] = [];
    socket.on("data", (chunk) => chunks.push(chunk)).on("error", () => {});
    socket.write(`GET /take HTTP/1.1\r\nHost: ${PLAIN}\r\nConnection: close\r\n\r\n`);
    await inTime(new Promise((resolve) => socket.once("close", resolve)), "the end of a connection");
    expect(Buffer.concat(chunks).toString()).toMatch(/^HTTP\/1.1 200 [\s\S]*plain$/);
    expect(plain).toHaveLength(1);
    expect(JSON.stringify(plain)).not.toMatch(/authorization|x-key|secret|sk-/i);
  });

  test("within the bound origin is judged afresh", async () => {
    await world.bind(
      {},
      {
        connections: [
          connection({ generation: 2, paths: ["/a"] }),
          connection({ name: "second", host: OTHER }),
        ],
      },
    );
    expect((await world.ask("/elsewhere")).status).toBe(403);
    expect(world.origin.received).toEqual([]);
    expect((await world.ask("/a")).status).toBeLessThan(400);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${SECRET}`]);
  });
});
