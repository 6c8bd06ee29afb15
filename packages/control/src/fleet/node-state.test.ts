import { setTimeout as sleep } from "node:timers/promises";
import type { NodeInfo } from "@vivarium/contract/node";
import { beforeEach, expect, test, vi } from "vitest";
import type { NodeClient } from "./node-client.ts";
import { NodeError } from "./node-error.ts";
import { NodeState } from "./node-state.ts";

const INFO = { node_id: "n" } as NodeInfo;

let reads: number;
let answer: (signal?: AbortSignal) => Promise<NodeInfo>;
let state: NodeState;
beforeEach(() => {
  reads = 0;
  answer = async () => INFO;
  const info = (signal?: AbortSignal) => {
    reads += 1;
    return answer(signal);
  };
  state = new NodeState({ info } as NodeClient);
});

const silent = (signal?: AbortSignal) =>
  new Promise<NodeInfo>((_resolve, reject) => {
    signal?.addEventListener("abort", () => reject(new NodeError("aborted", "the call was given up")));
  });

test("all who ask at once share one read, and those who ask soon after its answer", async () => {
  const answers = await Promise.all([state.current(), state.current(), state.current()]);
  expect([...answers, await state.current()]).toEqual([INFO, INFO, INFO, INFO]);
  expect(reads).toBe(1);
});

test("a node that does not answer is waited for once, and asked again later", async () => {
  answer = silent;
  // Timers fire in order, even late. So a host that is paused meanwhile does not break this test.
  const late = sleep(700, "late");
  expect(await Promise.race([Promise.all([state.current(), state.current()]), late])).toEqual([
    undefined,
    undefined,
  ]);
  expect(await state.current()).toBeUndefined();
  expect(reads).toBe(1);
  answer = async () => INFO;
  await expect.poll(() => state.current()).toBe(INFO);
});

test("its last report is used while it is away", async () => {
  await state.refresh();
  answer = silent;
  const later = performance.now() + 3_000;
  vi.spyOn(performance, "now").mockReturnValue(later);
  expect(await state.current()).toBe(INFO);
  expect(reads).toBe(2);
  vi.restoreAllMocks();
});

test("of two reads that overlap the later one counts, also when its answer comes first", async () => {
  const [earlier, later] = [Promise.withResolvers<NodeInfo>(), { node_id: "later" } as NodeInfo];
  answer = () => earlier.promise;
  const first = state.refresh();
  answer = async () => later;
  expect(await state.refresh()).toBe(later);
  earlier.resolve(INFO);
  expect(await first).toBe(INFO);
  expect(state.lastKnown).toBe(later);
});
