import type { AddressInfo } from "node:net";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { keepAlive } from "./keep-alive.ts";

let server: WebSocketServer;
beforeAll(async () => {
  server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await new Promise((resolve) => server.once("listening", resolve));
});
afterAll(() => {
  server.close();
});

async function pair(options: { autoPong: boolean }): Promise<{ ours: WebSocket; theirs: WebSocket }> {
  const accepted = new Promise<WebSocket>((resolve) => server.once("connection", resolve));
  const theirs = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, options);
  theirs.on("error", () => {});
  await new Promise((resolve) => theirs.once("open", resolve));
  return { ours: await accepted, theirs };
}

/** Longer than this process is not run for: both ends are in it, and what came meanwhile is heard late. */
const STALLED_MS = 1_200 * SLOWNESS;

const closeOf = (webSocket: WebSocket) => new Promise<number>((resolve) => webSocket.once("close", resolve));

test("a peer that answers pings is kept, however little it says", async () => {
  const { ours, theirs } = await pair({ autoPong: true });
  keepAlive(ours, { pingMs: 20, silenceMs: STALLED_MS });
  let pings = 0;
  theirs.on("ping", () => {
    pings += 1;
  });
  await new Promise((resolve) => setTimeout(resolve, 2 * STALLED_MS));
  expect(pings).toBeGreaterThan(5);
  expect(ours.readyState).toBe(ours.OPEN);
  theirs.terminate();
});

test("a peer that is silent for too long is dropped", async () => {
  const { ours, theirs } = await pair({ autoPong: false });
  keepAlive(ours, { pingMs: 20, silenceMs: 150 });
  expect(await closeOf(theirs)).toBe(1006);
});

test("a peer that sends without answering pings is not silent", async () => {
  const { ours, theirs } = await pair({ autoPong: false });
  keepAlive(ours, { pingMs: 20, silenceMs: STALLED_MS });
  for (let n = 0; n < 40; n++) {
    theirs.send("x");
    await new Promise((resolve) => setTimeout(resolve, STALLED_MS / 20));
  }
  expect(ours.readyState).toBe(ours.OPEN);
  theirs.terminate();
});

test("who is not listened to is not called silent", async () => {
  const { ours, theirs } = await pair({ autoPong: true });
  keepAlive(ours, { pingMs: 20, silenceMs: 150 });
  ours.pause();
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(ours.readyState).toBe(ours.OPEN);
  ours.resume();
  theirs.terminate();
});
