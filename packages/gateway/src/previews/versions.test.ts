import { createHash } from "node:crypto";
import { once } from "node:events";
import { type ClientRequest, request } from "node:http";
import type { Socket } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  closedOf,
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  get,
  mintToken,
  NAVIGATION,
  openUpgrade,
  sha256,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

let gateway: Gateway;
let guest: Guest;

beforeAll(async () => {
  gateway = await startGateway();
  guest = await startGuest(
    (message, response) => {
      if (message.url === "/endless") response.write("begun");
      else response.end("plain");
    },
    (message, socket, head) => {
      const accept = createHash("sha1")
        .update(`${message.headers["sec-websocket-key"]}${GUID}`)
        .digest("base64");
      socket.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\nSet-Cookie: wide=1; Domain=localhost\r\n\r\nhello`,
      );
      socket.write(head);
      socket.pipe(socket);
    },
  );
});

afterAll(async () => {
  await gateway.previews.close();
  await stopGuest(guest);
});

const cookieFor = async ({ host, token }: Exposed) => {
  const reply = await get(gateway, host, `/?t=${token}`, { headers: NAVIGATION });
  return reply.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
};

const webSocket = (preview: Exposed) =>
  openUpgrade(gateway, preview.host, "/ws", { "vivarium-preview-token": preview.token });

async function echo(socket: Socket, text: string): Promise<string> {
  socket.write(text);
  let got = "";
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    got += chunk;
    if (got.endsWith(text)) break;
  }
  return got;
}

async function endless({ host, token }: Exposed): Promise<ClientRequest> {
  const outgoing = request({
    port: gateway.port,
    path: "/endless",
    headers: { host, "vivarium-preview-token": token },
    agent: false,
  });
  outgoing.on("error", () => undefined).end();
  const [answer] = await once(outgoing, "response");
  answer.on("error", () => undefined).resume();
  return outgoing;
}

describe("a WebSocket", () => {
  test("passes bytes both ways once it is granted, and its answer is cleaned like any other", async () => {
    const preview = expose(gateway, guest);
    const { socket, head } = await webSocket(preview);
    expect(head).toMatch(/^HTTP\/1\.1 101 /);
    expect(head).toMatch(/sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=/i);
    expect(head).not.toMatch(/set-cookie/i);
    expect(await echo(socket, "x".repeat(1 << 20))).toContain("x".repeat(1 << 20));
    socket.destroy();
  });

  test("by cookie needs this very preview as its Origin; by token it needs none", async () => {
    const preview = expose(gateway, guest);
    const cookie = await cookieFor(preview);
    const beside = preview.host.replace(/^\d+/, "3000");
    const opened = async (headers: Record<string, string>, path = "/") => {
      const { socket, head } = await openUpgrade(gateway, preview.host, path, headers);
      socket.destroy();
      return head.slice(9, 12);
    };
    expect(await opened({ cookie, origin: `http://${preview.host}` })).toBe("101");
    for (const origin of [`https://${preview.host}`, `http://${beside}`, "http://evil.example", "null"]) {
      expect(await opened({ cookie, origin }), origin).toBe("403");
    }
    expect(await opened({ cookie })).toBe("403");
    expect(await opened({}, `/?t=${preview.token}`)).toBe("101");
    expect(await opened({ origin: "http://evil.example" }, `/?t=${mintToken()}`)).toBe("404");
  });

  test("ends on both sides when either goes, after what was sent has arrived", async () => {
    const preview = expose(gateway, guest);
    const { socket } = await webSocket(preview);
    const before = guest.sockets.size;
    expect(await echo(socket, "bye")).toContain("bye");
    socket.end();
    await closedOf(socket);
    while (guest.sockets.size >= before) await new Promise((resolve) => setTimeout(resolve, 5));
    const other = await webSocket(preview);
    const [last] = [...guest.sockets].slice(-1);
    last?.end("last words");
    let heard = String(other.rest);
    for await (const chunk of other.socket) heard += chunk;
    expect(heard).toContain("last words");
  });
});

describe("a new version of a route (P-05)", () => {
  test("ends the URL, the cookie, the WebSocket and the answer under way, and those of no other route", async () => {
    const one = expose(gateway, guest);
    const two = expose(gateway, guest);
    const cookie = await cookieFor(one);
    const streams = [await endless(one), await endless(two)];
    const sockets = [await webSocket(one), await webSocket(two)];
    const token = mintToken();
    gateway.tables.putRoute({ ...one.route, version: 2, token_sha256: sha256(token) });
    await gateway.previews.settled();
    await closedOf(sockets[0]?.socket as Socket);
    await closedOf(streams[0]?.socket as Socket);
    expect((await get(gateway, one.host, `/?t=${one.token}`)).status).toBe(404);
    expect((await get(gateway, one.host, "/", { headers: { cookie } })).status).toBe(404);
    expect((await get(gateway, one.host, `/?t=${token}`)).status).toBe(200);
    expect(await echo(sockets[1]?.socket as Socket, "alive")).toContain("alive");
    expect(streams[1]?.destroyed).toBe(false);
    for (const { socket } of sockets) socket.destroy();
    for (const stream of streams) stream.destroy();
  });

  test("has nothing open towards the guest any more once it is settled", async () => {
    const own = await startGuest((_, response) => response.write("begun"));
    const preview = expose(gateway, own);
    const streams = await Promise.all(Array.from({ length: 5 }, () => endless(preview)));
    expect(own.sockets.size).toBe(5);
    const left = Promise.all([...own.sockets].map(closedOf));
    gateway.tables.change({ routes: [] });
    await gateway.previews.settled();
    await left;
    await Promise.all(streams.map((stream) => closedOf(stream.socket as Socket)));
    expect(
      (await get(gateway, preview.host, "/", { headers: { "vivarium-preview-token": preview.token } }))
        .status,
    ).toBe(404);
    await stopGuest(own);
  });

  test("also ends a request that waits for a wake", async () => {
    const preview = expose(gateway, guest, { state: "paused" });
    gateway.onWake = () => new Promise(() => undefined);
    const waiting = get(gateway, preview.host, `/?t=${preview.token}`).then(
      () => "answered",
      () => "cut",
    );
    while (gateway.wakes.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    gateway.tables.putRoute({ ...preview.route, version: 2 });
    expect(await waiting).toBe("cut");
  });
});

describe("tables that leave the route as it is", () => {
  test("leave its connections alone, whatever else changes", async () => {
    const preview = expose(gateway, guest);
    const { socket } = await webSocket(preview);
    gateway.tables.change({ never: ["10.0.0.0/8"] });
    gateway.tables.putRoute({ ...preview.route });
    await gateway.previews.settled();
    expect(await echo(socket, "alive")).toContain("alive");
    socket.destroy();
  });

  test.each([
    [
      "another machine has the session",
      (preview: Exposed) => gateway.tables.addMachine(preview.route.session_id, guest.address, "next"),
    ],
    [
      "the session is paused",
      (preview: Exposed) => gateway.tables.putRoute({ ...preview.route, state: "paused" }),
    ],
    ["the machine's slot is free", () => gateway.tables.change({ slots: [] })],
  ])("end its connections when %s", async (_, change) => {
    const preview = expose(gateway, guest);
    const { socket } = await webSocket(preview);
    expect(await echo(socket, "alive")).toContain("alive");
    change(preview);
    await gateway.previews.settled();
    await closedOf(socket);
    expect(socket.destroyed).toBe(true);
  });
});
