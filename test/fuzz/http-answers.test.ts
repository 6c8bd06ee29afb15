/** Answers of hostile servers through a door made of the HTTP/1.1 edge: each ends its own connection at most. */
import assert from "node:assert/strict";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { createLog } from "@vivarium/kit/log";
import { afterAll, beforeAll, expect, test } from "vitest";
import { exchange, type StrictProxy, startProxy } from "../../packages/http1/test-support/proxy.ts";
import { type Random, randomFrom } from "../chaos/random.ts";
import { someAnswer, someRequest } from "./http-answers.ts";
import { forEachInput, TIME_LIMIT_MS } from "./inputs.ts";
import { cut } from "./mutations.ts";

const GOOD = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
const GOODBYE = { pieces: [], leave: (socket: Socket): unknown => socket.end() };
/** A head of ours or of the other side; with a WebSocket bytes follow. */
const HEAD = /^HTTP\/1\.1 (101|[2-9]\d\d) [ -~]*\r\n/;
/** A client that asked whether its body is welcome may get this before anything else. */
const WELCOME = /^HTTP\/1\.1 100 Continue\r\n\r\n/;

/** Exceptions that no handler caught, and those that a guard caught. */
const thrown: unknown[] = [];
const log = Object.assign(createLog("fuzz", "silent"), { error: (what: unknown) => thrown.push(what) });
const onThrown = (error: unknown) => thrown.push(error);

interface Turn {
  pieces: Buffer[];
  /** How the other side goes once it has said them; it may also stay for another turn. */
  leave?: (socket: Socket) => unknown;
}

/** The other side: what it says to each request of this round. */
let turns: Turn[] = [];
let round = 0;
const sockets = new Set<Socket>();
const other = createServer((socket) => {
  sockets.add(socket.on("error", () => {}));
  socket.once("close", () => sockets.delete(socket));
  socket.on("data", (bytes) => {
    if (bytes.includes(`/${round} HTTP/1.1\r\n`)) void say(socket, turns.shift() ?? GOODBYE);
  });
});

async function say(socket: Socket, { pieces, leave }: Turn): Promise<void> {
  for (const piece of pieces) {
    if (!socket.writable) return;
    socket.write(piece);
    await new Promise((resolve) => setImmediate(resolve));
  }
  leave?.(socket);
}

let proxy: StrictProxy;

beforeAll(async () => {
  process.on("uncaughtExceptionMonitor", onThrown);
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  proxy = await startProxy((other.address() as AddressInfo).port, log);
});

afterAll(async () => {
  process.off("uncaughtExceptionMonitor", onThrown);
  for (const socket of sockets) socket.destroy();
  other.close();
  await proxy.close();
});

async function isServed(): Promise<boolean> {
  round++;
  turns = [{ ...GOODBYE, pieces: [GOOD] }];
  const heard = await exchange(proxy.port, `GET /${round} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`);
  return /^HTTP\/1\.1 200 OK\r\n[\s\S]*good$/.test(heard);
}

function prepare(random: Random): void {
  round++;
  turns = Array.from({ length: 2 }, () => ({
    pieces: cut(random, someAnswer(random)),
    leave: random.below(3) > 0 ? GOODBYE.leave : (socket) => socket.resetAndDestroy(),
  }));
  if (random.below(4) === 0) turns.unshift({ pieces: [GOOD] });
}

test("answers end no connection but their own, and break no handler", {
  timeout: TIME_LIMIT_MS,
}, async () => {
  const outcomes = { passed: 0, refused: 0, cut: 0 };
  let inputs = 0;
  await forEachInput("httpAnswers", async (random) => {
    prepare(random);
    const request = someRequest(random, { host: "x", path: `/${round}` });
    const heard = (await exchange(proxy.port, request)).replace(WELCOME, "");
    assert(heard === "" || HEAD.test(heard), `what was heard is no answer: ${heard.slice(0, 200)}`);
    if (/^HTTP\/1\.1 101 /.test(heard)) assert.match(request, /Upgrade: websocket/);
    outcomes[heard === "" ? "cut" : /^HTTP\/1\.1 502 /.test(heard) ? "refused" : "passed"]++;
    assert.deepEqual(thrown, []);
    if (inputs++ % 50 === 0) assert(await isServed(), "the next request is not answered");
  });
  expect(await isServed()).toBe(true);
  // Answers that are all refused, or all let through, would try little.
  expect(outcomes.passed).toBeGreaterThan(inputs / 10);
  expect(outcomes.refused).toBeGreaterThan(inputs / 10);
});

test("an exception that nobody catches is noticed", async () => {
  const before = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.once("uncaughtException", () => {});
  setImmediate(() => {
    throw new Error("not caught");
  });
  await new Promise((resolve) => setTimeout(resolve, 50));
  for (const listener of before) process.on("uncaughtException", listener);
  expect(thrown.splice(0)).toEqual([new Error("not caught")]);
});

test("the same seed gives the same answers", () => {
  expect(someAnswer(randomFrom(7))).toEqual(someAnswer(randomFrom(7)));
});
