/** Connections that are replaced, revoked, expired, or whose control is away: what still runs under them is closed. */
import { once } from "node:events";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  ask2,
  type BoundWorld,
  connection,
  HOST,
  reportsOf,
  SECRET,
  startBoundWorld,
  valuesIn,
} from "../../test-support/bound-world.ts";
import { inTime, until } from "../../test-support/in-time.ts";
import { a, deny } from "../../test-support/world.ts";

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
const OTHER = "the-new-credential-9876543210";
let world: BoundWorld;
let generation = 1;

beforeAll(async () => {
  world = await startBoundWorld("127.31.43");
});

beforeEach(async () => {
  await world.bound.drop("ses_1");
  generation += 1;
  await world.bind({ generation });
  world.origin.received.length = 0;
  world.origin.readsBody = true;
  world.origin.answer = (_request, response) => void response.end("ok");
});

afterAll(() => world.close());

/** The code of a refusal; the body itself of what was not refused. */
const codeOf = ({ body }: { body: string }) => (body.startsWith("{") ? JSON.parse(body).code : body);
const revoked = { name: "api", host: HOST, state: "revoked" as const };

/** Opens an endless answer and an endless upload, over both versions of HTTP. */
async function openStreams() {
  world.origin.readsBody = false;
  world.origin.answer = (request, response) => {
    request.resume();
    response.write("begin");
    const timer = setInterval(() => response.write("more"), 5);
    response.once("close", () => clearInterval(timer));
  };
  const socket = await world.open();
  socket.on("data", () => {});
  socket.write(`POST /upload HTTP/1.1\r\nHost: ${HOST}\r\nTransfer-Encoding: chunked\r\n\r\n`);
  const session = await world.session2();
  const stream = session.request({ ":method": "POST", ":path": "/upload", ":authority": HOST });
  stream.on("error", () => {}).on("data", () => {});
  const timer = setInterval(() => {
    if (socket.writable) socket.write("4\r\nmore\r\n");
    if (stream.writable && !stream.destroyed) stream.write("more");
  }, 2);
  await until(
    () => world.origin.received.length === 2 && world.origin.received.every(({ body }) => body.length > 8),
  );
  return {
    async closed() {
      const ends = [socket, stream].map((one) =>
        one.closed ? undefined : once(one, "close").catch(() => {}),
      );
      await inTime(Promise.all(ends), "the end of both connections");
      clearInterval(timer);
    },
  };
}

/** Bytes that the origin has received of all bodies. */
const uploaded = () => world.origin.received.reduce((sum, { body }) => sum + body.length, 0);

describe("a Connection that is revoked", () => {
  test("is closed at the origin and the guest when the call returns, and no further byte is sent", async () => {
    const open = await openStreams();
    await world.bind({}, { connections: [], tombstones: [revoked] });
    await open.closed();
    // Bytes that had left before are in the origin's buffers.
    await until(() => world.origin.sockets.size === 0);
    const before = uploaded();
    await pause(100);
    expect(uploaded()).toBe(before);
    const reply = await world.ask();
    expect(reply.status).toBe(403);
    expect(codeOf(reply)).toBe("connection_revoked");
    expect(world.origin.received).toHaveLength(2);
  });

  test("stays revoked, whatever is pushed later", async () => {
    await world.bind({}, { connections: [], tombstones: [revoked] });
    await world.bind({ generation: generation + 100 });
    expect(codeOf(await world.ask())).toBe("connection_revoked");
    await world.bind({}, { connections: [], tombstones: [{ ...revoked, state: "expired" }] });
    expect(codeOf(await world.ask())).toBe("connection_revoked");
    expect(world.origin.received).toEqual([]);
  });

  test("refuses over HTTP/2 as well", async () => {
    await world.bind({}, { connections: [], tombstones: [revoked] });
    const session = await world.session2();
    const reply = await ask2(session, {});
    expect(reply.status).toBe(403);
    expect(codeOf(reply)).toBe("connection_revoked");
    session.destroy();
  });

  test("is also one that is no longer listed, and one of a session that was dropped is bound no more", async () => {
    await world.bind({}, { connections: [], tombstones: [] });
    expect(codeOf(await world.ask())).toBe("connection_revoked");
    await world.bound.drop("ses_1");
    await expect(world.open()).rejects.toThrow();
    expect(world.origin.text()).not.toContain(SECRET);
  });

  test("while the origin is being dialled never sends the credential", async () => {
    world.names.script = () => "silent";
    await world.bind({ host: "slow.api.example", generation });
    await world.apply({ first: deny(HOST, "slow.api.example", "other.example") });
    world.names.script = () => "silent";
    const socket = await world.open({ servername: "slow.api.example" });
    socket.on("error", () => {}).resume();
    socket.write("GET /a HTTP/1.1\r\nHost: slow.api.example\r\n\r\n");
    await until(() => world.names.asked.some(({ name }) => name === "slow.api.example"));
    await world.bind({}, { connections: [], tombstones: [{ ...revoked, host: "slow.api.example" }] });
    world.names.script = (name) => [a(name, "127.31.43.80")];
    await pause(2_500);
    expect(world.origin.received).toEqual([]);
    expect(socket.closed).toBe(true);
  });
});

describe("a Connection that is replaced", () => {
  test("uses the new credential from the call's return on, and what ran under the old one is cut", async () => {
    const open = await openStreams();
    const before = world.origin.received.length;
    await world.bind({ generation: generation + 1, header: { name: "X-Key", value: OTHER } });
    world.origin.answer = (_request, response) => void response.end("ok");
    expect((await world.ask()).status).toBe(200);
    await open.closed();
    const later = world.origin.received.slice(before);
    expect(later).toHaveLength(1);
    expect(valuesIn(later[0] as never, "x-key")).toEqual([OTHER]);
    expect(JSON.stringify(later)).not.toContain(SECRET.slice(0, 10));
  });

  test("is not replaced by an older one that arrives late, in its version or its generation", async () => {
    const header = { name: "Authorization", value: `Bearer ${OTHER}` };
    const ca = { certificate_pem: world.ca.certificatePem, key_pem: world.ca.keyPem };
    await world.bind({ generation: generation + 1, header });
    await world.bind({ generation });
    await world.bound.set({
      ...{ session_id: "ses_1", version: 1, ca, tombstones: [] },
      connections: [connection({ generation: generation + 9 })],
    });
    expect((await world.ask()).status).toBe(200);
    expect(valuesIn(world.origin.received[0] as never, "authorization")).toEqual([`Bearer ${OTHER}`]);
  });

  test("keeps what is open when the same one is sent again", async () => {
    const open = await openStreams();
    const before = uploaded();
    await world.bind({ generation });
    await until(() => uploaded() > before + 100);
    await world.bind({}, { connections: [], tombstones: [revoked] });
    await open.closed();
  });
});

describe("a Connection whose time is over", () => {
  test("is cut in the middle of an answer, refused with 403, and works again once it is replaced", async () => {
    // Both are open by then, on a busy host too.
    const soon = new Date(Date.now() + 4_000 * SLOWNESS).toISOString();
    await world.bind({ generation: generation + 1, expires_at: soon });
    const open = await openStreams();
    await open.closed();
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(soon) - 20);
    expect(codeOf(await world.ask())).toBe("connection_expired");
    expect(world.origin.received).toHaveLength(2);
    world.origin.answer = (_request, response) => void response.end("ok");
    await world.bind({ generation: generation + 2 });
    expect((await world.ask()).status).toBe(200);
  });
});

describe("the egress policy", () => {
  test("decides at every use: 403 while it does not have the origin, and open connections are cut", async () => {
    const open = await openStreams();
    await world.apply({ first: deny("other.example") });
    await open.closed();
    const reply = await world.ask();
    expect(reply.status).toBe(403);
    expect(codeOf(reply)).toBe("egress_denied");
    expect(world.origin.received).toHaveLength(2);
    await world.apply({ first: deny(HOST, "other.example") });
    world.origin.answer = (_request, response) => void response.end("ok");
    expect((await world.ask()).status).toBe(200);
  });

  test("of mode allow lets the origin be intercepted like one of mode deny", async () => {
    await world.apply({ first: { mode: "allow", allow: [] } });
    expect((await world.ask()).status).toBe(200);
    expect(world.origin.text()).toContain("Bearer sk-live");
    await world.apply({ first: deny(HOST, "other.example") });
  });
});

test("a bound host is not reached while the gateway does not have the session's Connections", async () => {
  await world.bound.drop("ses_1");
  await world.apply({ first: deny(HOST, "other.example"), boundHosts: [HOST] });
  const roots = world.roots.certificatePem;
  await expect(world.open({ ca: roots })).rejects.toThrow();
  expect(world.origin.received).toEqual([]);
  await world.apply({ first: deny(HOST, "other.example") });
  const socket = await world.open({ ca: roots });
  socket.destroy();
});

test("a flow that passed unread to a host ends when the host is bound", async () => {
  await world.bound.drop("ses_1");
  await world.apply({ first: deny(HOST, "other.example") });
  const socket = await world.open({ ca: world.roots.certificatePem });
  await world.bind({ generation });
  await world.apply({ first: deny(HOST, "other.example"), boundHosts: [HOST] });
  if (!socket.closed) await inTime(once(socket, "close"), "the end of the flow");
  await until(() => world.origin.sockets.size === 0);
  const bound = await world.open();
  await world.apply({ first: deny(HOST, "other.example"), boundHosts: [HOST, "other.example"] });
  expect(bound.closed).toBe(false);
  bound.destroy();
});

describe("without word from control for 20 seconds", () => {
  let away: BoundWorld;

  beforeAll(async () => {
    away = await startBoundWorld("127.31.44");
  });

  afterAll(() => away.close());

  test("nothing is injected, and it is again once control is back; other traffic continues", async () => {
    const ca = { certificate_pem: away.ca.certificatePem, key_pem: away.ca.keyPem };
    const sent = { session_id: "ses_1", version: 1, ca, connections: [connection()], tombstones: [] };
    await away.bound.set(sent);
    expect(codeOf(await away.ask())).toBe("connection_upstream");
    expect(await reportsOf(away, 1)).toMatchObject([{ event: "failed", is_sent: false }]);
    away.bound.renewLease(15_000);
    expect((await away.ask()).status).toBe(200);
    await pause(5_100);
    const reply = await away.ask();
    expect(reply.status).toBe(502);
    expect(codeOf(reply)).toBe("connection_upstream");
    expect(away.origin.received).toHaveLength(1);
    await away.apply({ first: deny(HOST), second: deny(HOST) });
    const other = await away.open({ host: away.hosts[1], ca: away.roots.certificatePem });
    other.destroy();
    away.bound.renewLease();
    expect((await away.ask()).status).toBe(200);
    away.bound.renewLease(60_000);
    expect((await away.ask()).status).toBe(200);
  });
});
