import { expect, test } from "vitest";
import { SessionShare } from "./session-share.ts";
import { Turns } from "./turns.ts";

const KIB = 1024;
const turnOfTheLoop = () => new Promise((resolve) => setImmediate(resolve));

test("work is done at once while nobody waits, up to an amount in one turn of the event loop", async () => {
  const turns = new Turns();
  const session = {};
  let done = 0;
  for (let at = 0; at < 100; at++) turns.take(session, 16 * KIB, () => done++);
  expect(done).toBe(8);
  await turnOfTheLoop();
  expect(done).toBe(16);
  for (let at = 0; at < 20; at++) await turnOfTheLoop();
  expect(done).toBe(100);
});

test("a session with one piece waits for one piece of each other session, however many those have", async () => {
  const turns = new Turns();
  const order: string[] = [];
  const take = (name: string, session: object, count: number) => {
    for (let at = 0; at < count; at++) turns.take(session, 64 * KIB, () => order.push(name));
  };
  take("a", { a: 1 }, 1_000);
  take("b", { b: 1 }, 1_000);
  order.length = 0;
  take("c", { c: 1 }, 1);
  while (!order.includes("c")) await turnOfTheLoop();
  expect(order.slice(0, order.indexOf("c"))).toEqual(["a", "b"]);
});

test("the pieces of one session are done in the order of asking, also those that they lead to", async () => {
  const turns = new Turns();
  const session = {};
  const asked: string[] = [];
  const done: string[] = [];
  const take = (name: string) => {
    asked.push(name);
    turns.take(session, 100 * KIB, () => {
      done.push(name);
      if (name.length < 4) for (const more of "ab") take(`${name}${more}`);
    });
  };
  take("a");
  take("b");
  while (done.length < 2 + 4 + 8 + 16) await turnOfTheLoop();
  expect(done).toEqual(asked);
});

test("the memory for decoders is given in the order of asking, and what is given back twice counts once", () => {
  const share = new SessionShare(new Turns());
  const given: string[] = [];
  const take = (name: string, mib: number) => share.takeMemory(mib * KIB * KIB, () => given.push(name));
  const giveBack = take("large", 50);
  take("too large now", 20);
  take("small", 1);
  const endWait = take("never", 64);
  expect(given).toEqual(["large"]);
  giveBack();
  giveBack();
  expect(given).toEqual(["large", "too large now", "small"]);
  take("behind", 1);
  expect(given).toHaveLength(3);
  endWait();
  expect(given).toHaveLength(3);
  take("last", 42);
  expect(given).toEqual(["large", "too large now", "small", "behind", "last"]);
});
