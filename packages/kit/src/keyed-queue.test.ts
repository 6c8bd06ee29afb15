import { expect, test } from "vitest";
import { KeyedQueue } from "./keyed-queue.ts";

test("work of one key goes one after the other, also after a failure; other keys do not wait", async () => {
  const turns = new KeyedQueue();
  const seen: string[] = [];
  const first = Promise.withResolvers<void>();
  const failing = turns.run("a", async () => {
    seen.push("first");
    await first.promise;
    throw new Error("in vain");
  });
  const second = turns.run("a", async () => seen.push("second"));
  await turns.run("b", async () => seen.push("other"));
  expect(seen).toEqual(["first", "other"]);
  first.resolve();
  await expect(failing).rejects.toThrow("in vain");
  await second;
  expect(seen).toEqual(["first", "other", "second"]);
});
