import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { PassThrough } from "node:stream";
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterEach, expect, test, vi } from "vitest";
import { endGently } from "./close-gently.ts";

const NEVER = { ms: 60_000, inAllMs: 60_000, bytes: 64_000_000 };

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Both ends of a connection; neither closes because the other has. */
async function connection(): Promise<{ ours: Socket; theirs: Socket }> {
  const server = createServer({ allowHalfOpen: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const theirs = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  theirs.on("error", () => {});
  const [ours] = (await once(server, "connection")) as [Socket];
  closers.push(() => {
    theirs.destroy();
    server.close();
  });
  return { ours, theirs };
}

test("a client that closes as well gets all that was written, though it was sending", async () => {
  const { ours, theirs } = await connection();
  theirs.write(Buffer.alloc(10_000_000));
  ours.write("the answer");
  endGently(ours, { ...NEVER, bytes: 64_000_000 });
  let text = "";
  for await (const chunk of theirs) text += chunk;
  expect(text).toBe("the answer");
  theirs.end();
  await once(ours, "close");
});

test("a client that does not close is cut off", async () => {
  const { ours } = await connection();
  endGently(ours, { ...NEVER, ms: 50 });
  await once(ours, "close");
});

test("a client is silent from its last byte on", async () => {
  vi.useFakeTimers();
  try {
    const client = new PassThrough();
    endGently(client, { ...NEVER, ms: 1_000 });
    for (let n = 0; n < 5; n++) {
      vi.advanceTimersByTime(900);
      client.emit("data", Buffer.from("x"));
    }
    expect(client.destroyed).toBe(false);
    vi.advanceTimersByTime(1_000);
    expect(client.destroyed).toBe(true);
  } finally {
    vi.useRealTimers();
  }
});

test("bytes that arrived while this process was stopped count as sent in time", async () => {
  const { ours, theirs } = await connection();
  if (theirs.connecting) await once(theirs, "connect");
  endGently(ours, { ...NEVER, ms: 50 });
  let isReset = false;
  theirs.on("error", () => {
    isReset = true;
  });
  for (let stall = 0; stall < 3; stall++) {
    // The system has received it before the process is stopped.
    theirs.write("x");
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    await nextTurn();
    expect([ours.destroyed, isReset]).toEqual([false, false]);
  }
  await once(ours, "close");
});

test("a client that sends slowly, and never closes, is cut off", async () => {
  const { ours, theirs } = await connection();
  const drip = setInterval(() => theirs.write("x"), 10);
  closers.push(() => clearInterval(drip));
  endGently(ours, { ...NEVER, inAllMs: 200 });
  await once(ours, "close");
});

test("a client that sends on for ever is cut off", async () => {
  const { ours, theirs } = await connection();
  const write = () => void theirs.write(Buffer.alloc(100_000), (error) => error ?? write());
  write();
  endGently(ours, { ...NEVER, bytes: 1_000_000 });
  await once(ours, "close");
});
