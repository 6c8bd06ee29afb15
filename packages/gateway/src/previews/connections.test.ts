import { Agent, request } from "node:http";
import { connect, type Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  closedOf,
  type Exposed,
  expose,
  type Gateway,
  type Guest,
  get,
  startGateway,
  startGuest,
  stopGuest,
} from "../../test-support/previews.ts";

const PLACES = 256;

let guest: Guest;
let gateway: Gateway;
let preview: Exposed;
let visitors: Socket[] = [];

beforeEach(async () => {
  guest = await startGuest(({ url }, response) => {
    if (url !== "/silent") response.end(`guest ${url}`);
  });
});
afterEach(async () => {
  for (const socket of visitors) socket.destroy();
  visitors = [];
  await gateway.previews.close();
  await stopGuest(guest);
});

async function start(bounds = {}): Promise<void> {
  gateway = await startGateway({ bounds });
  preview = expose(gateway, guest, { visibility: "public" });
}

const asking = (path: string) => `GET ${path} HTTP/1.1\r\nHost: ${preview.host}\r\n\r\n`;

/** Resolves once the bytes are sent. */
async function visit(bytes: string): Promise<Socket> {
  const socket = connect(gateway.port, "127.0.0.1");
  socket.on("error", () => undefined).resume();
  visitors.push(socket);
  await new Promise<void>((resolve) => socket.write(bytes, () => resolve()));
  return socket;
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

describe("a connection that does not wait for its answers", () => {
  test("may send 16 requests, and with one more is closed", async () => {
    await start();
    const [patient, hasty] = [
      await visit(asking("/silent").repeat(16)),
      await visit(asking("/silent").repeat(17)),
    ];
    await closedOf(hasty);
    await until(() => guest.heads.length >= 16);
    expect(patient.closed).toBe(false);
  });

  test("may continue when it has them", async () => {
    await start();
    const socket = await visit("");
    let answers = "";
    socket.on("data", (bytes) => {
      answers += bytes;
    });
    for (let sent = 0; sent < 64; sent += 16) {
      socket.write(asking("/quick").repeat(16));
      await until(() => answers.split("guest /quick").length - 1 === sent + 16);
    }
    expect(socket.closed).toBe(false);
  });

  test("gives back every place when it goes, also with an upgrade at its end", async () => {
    await start();
    for (const rounds of [1, 2]) await takeEveryPlace(rounds);
    expect((await get(gateway, preview.host, "/after")).body).toBe("guest /after");
  });

  async function takeEveryPlace(rounds: number): Promise<void> {
    const upgrade = asking("/up").replace(
      "\r\n\r\n",
      "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    );
    for (let i = 0; i < PLACES / 8; i++) await visit(asking("/silent").repeat(8));
    await until(() => guest.heads.length === rounds * PLACES);
    for (const socket of visitors) socket.write(upgrade);
    await Promise.all(visitors.splice(0).map(closedOf));
  }
});

describe("when the last place for a connection is taken", () => {
  /** A visitor's connection that is kept. */
  function ask(agent: Agent): Promise<{ isReused: boolean }> {
    const outgoing = request({ port: gateway.port, headers: { host: preview.host }, agent });
    return new Promise((resolve, reject) => {
      outgoing.on("error", reject).on("response", (answer) => {
        answer.resume().once("end", () => resolve({ isReused: outgoing.reusedSocket }));
      });
      outgoing.end();
    });
  }

  test("the one that rests longest goes, and those at work stay", async () => {
    await start({ connections: 8 });
    const working = await visit(asking("/silent"));
    const agents = Array.from({ length: 6 }, () => new Agent({ keepAlive: true }));
    for (const agent of agents) await ask(agent);
    const [first, second] = agents as [Agent, Agent];
    expect(await ask(first)).toEqual({ isReused: true });
    const late = Array.from({ length: 3 }, () => new Agent({ keepAlive: true }));
    for (const agent of late) expect(await ask(agent)).toEqual({ isReused: false });
    expect(await ask(first)).toEqual({ isReused: true });
    expect(await ask(second)).toEqual({ isReused: false });
    expect(working.closed).toBe(false);
    for (const agent of [...agents, ...late]) agent.destroy();
  });
});
