/** A command in a machine that appends growing numbers to a file: a gap or a repeat shows what was lost. */
import { expect } from "vitest";
import { eventually } from "./eventually.ts";
import type { NodeCaller } from "./node-caller.ts";

const LOOP = "(i=0; while :; do i=$((i+1)); echo $i >> count; sleep 0.05; done) > /dev/null 2>&1 &";

export async function startCounter(node: NodeCaller, machineId: string): Promise<void> {
  await node.exec(machineId, { argv: ["sh", "-c", LOOP] });
  await eventually(async () => expect(await countIn(node, machineId)).toBeGreaterThan(0));
}

/** The last number; checks that every number so far is there once and in order. */
export async function countIn(node: NodeCaller, machineId: string): Promise<number> {
  const done = await node.exec(machineId, { argv: ["cat", "count"] });
  expect(done).toMatchObject({ status: 200, exit: { exit_code: 0 } });
  const numbers = done.stdout.toString().trim().split("\n").map(Number);
  expect(numbers).toEqual(numbers.map((_, i) => i + 1));
  return numbers.length;
}

export async function expectCounting(node: NodeCaller, machineId: string): Promise<void> {
  const seen = await eventually(() => countIn(node, machineId), 30_000);
  await eventually(async () => expect(await countIn(node, machineId)).toBeGreaterThan(seen));
}
