import { MIB } from "@vivarium/kit/sizes";
import { expect, it } from "vitest";
import { waitForMemory } from "./wait-for-memory.ts";

const never = new AbortController().signal;
const none = async () => false;
const free = (megabytes: number) => () => megabytes * MIB;

it("does not wait, and ends no warm machine, where there is memory", async () => {
  const giveUpOne = () => Promise.reject(new Error("a machine was ended"));
  await waitForMemory(1024, giveUpOne, never, { free: free(1536) });
});

it("ends warm machines one by one, and then waits", async () => {
  let megabytes = 1_000;
  let warm = 2;
  const giveUpOne = async () => {
    if (warm === 0) {
      megabytes = 2_000;
      return false;
    }
    warm -= 1;
    megabytes += 100;
    return true;
  };
  await waitForMemory(1024, giveUpOne, never, { free: () => megabytes * MIB, lookMs: 1 });
  expect(warm).toBe(0);
});

it("gives up after its time, and at an abort", async () => {
  const short = { free: free(100), lookMs: 1, limitMs: 5 };
  await expect(waitForMemory(1024, none, never, short)).rejects.toMatchObject({ code: "no_capacity" });
  const reason = new Error("the build was deleted");
  const aborted = waitForMemory(1024, none, AbortSignal.abort(reason), short);
  await expect(aborted).rejects.toBe(reason);
});
