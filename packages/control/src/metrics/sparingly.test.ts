import { expect, test } from "vitest";
import { sparingly } from "./sparingly.ts";

function slowReader() {
  const clock = { now: 1_000, reads: 0 };
  const answers: (() => void)[] = [];
  const read = sparingly(
    async () => {
      const n = ++clock.reads;
      await new Promise<void>((resolve) => answers.push(resolve));
      return n;
    },
    () => clock.now,
  );
  const answerAfter = (ms: number) => {
    clock.now += ms;
    answers.shift()?.();
  };
  return { clock, read, answerAfter };
}

test("calls that begin while a read runs share its answer", async () => {
  const { clock, read, answerAfter } = slowReader();
  const both = [read(), read()];
  answerAfter(7);
  expect(await Promise.all(both)).toEqual([1, 1]);
  expect(clock.reads).toBe(1);
});

test("an answer is repeated for ten times as long as the read took, and no longer", async () => {
  const { clock, read, answerAfter } = slowReader();
  const first = read();
  answerAfter(20);
  await first;
  clock.now += 199;
  expect(await read()).toBe(1);
  clock.now += 1;
  const second = read();
  answerAfter(0);
  expect(await second).toBe(2);
});

test("a read that failed is tried again by the next call", async () => {
  let reads = 0;
  const read = sparingly(
    async () => {
      reads++;
      if (reads === 1) throw new Error("the database is away");
      return reads;
    },
    () => 0,
  );
  await expect(read()).rejects.toThrow("away");
  expect(await read()).toBe(2);
});
