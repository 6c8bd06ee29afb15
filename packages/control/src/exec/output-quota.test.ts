import { setImmediate } from "node:timers/promises";
import { FRAME, type Frame } from "@vivarium/contract/guest";
import { expect, test } from "vitest";
import { collect } from "./collect.ts";
import { FREE_BYTES, OutputQuotas } from "./output-quota.ts";

const ORG = "org";
const LIMIT = 4 * FREE_BYTES;

/** A command that writes this much and ends; says how many of its frames were read. */
function command(bytes: number) {
  const counted = { frames: 0 };
  const end = {
    ...{ exit_code: 0, duration_us: 1, timed_out: false },
    ...{ stdout_truncated: false, stderr_truncated: false },
  };
  async function* frames(): AsyncGenerator<Frame> {
    for (let left = bytes; left > 0; left -= FREE_BYTES) {
      counted.frames++;
      yield { type: FRAME.stdout, payload: Buffer.alloc(Math.min(left, FREE_BYTES)) };
    }
    yield { type: FRAME.exit, payload: Buffer.from(JSON.stringify(end)) };
  }
  return { counted, frames: frames() };
}

async function isDone(work: Promise<unknown>): Promise<boolean> {
  let done = false;
  void work.then(() => {
    done = true;
  });
  for (let turn = 0; turn < 50; turn++) await setImmediate();
  return done;
}

const quotas = () => new OutputQuotas({ orgBytes: 2 * LIMIT });
function run(from: OutputQuotas, bytes: number, orgId = ORG) {
  const { counted, frames } = command(bytes);
  const reservation = from.reserve(orgId, LIMIT);
  return { counted, reservation, work: collect(frames, { limitBytes: LIMIT, reservation }) };
}

test("long outputs beyond an organisation's reservation are not read on until another's answer is out", async () => {
  const all = quotas();
  const first = run(all, LIMIT);
  const second = run(all, LIMIT);
  expect(await isDone(Promise.all([first.work, second.work]))).toBe(true);
  const third = run(all, LIMIT);
  expect(await isDone(third.work)).toBe(false);
  expect(third.counted.frames).toBe(2);
  second.reservation.release();
  second.reservation.release();
  expect((await third.work).stdout.sizeBytes).toBe(LIMIT);
  const fourth = run(all, LIMIT);
  expect(await isDone(fourth.work)).toBe(false);
  first.reservation.release();
  await fourth.work;
});

test("short outputs need no reservation, and other organisations have their own", async () => {
  const all = quotas();
  await Promise.all([run(all, LIMIT).work, run(all, LIMIT).work]);
  await run(all, FREE_BYTES).work;
  await run(all, LIMIT, "another").work;
});

test("who leaves while waiting takes nothing with it, and the next one comes in", async () => {
  const all = quotas();
  const [inside, other, waiting, next] = [LIMIT, LIMIT, LIMIT, LIMIT].map((bytes) => run(all, bytes));
  await Promise.all([inside?.work, other?.work]);
  expect(await isDone(Promise.race([waiting?.work, next?.work]))).toBe(false);
  waiting?.reservation.release();
  expect(await isDone(next?.work as Promise<unknown>)).toBe(false);
  inside?.reservation.release();
  await next?.work;
});

test("the commands of one answer share its reservation", async () => {
  const all = quotas();
  const reservation = all.reserve(ORG, 2 * LIMIT);
  const both = [command(LIMIT), command(LIMIT)];
  await Promise.all(both.map(({ frames }) => collect(frames, { limitBytes: LIMIT, reservation })));
  const later = run(all, LIMIT);
  expect(await isDone(later.work)).toBe(false);
  reservation.release();
  await later.work;
});

test("a large answer that came first is not kept waiting by small ones", async () => {
  const all = quotas();
  const inside = run(all, LIMIT);
  await inside.work;
  const batch = all.reserve(ORG, 2 * LIMIT);
  const batchEntered = batch.take();
  const late = run(all, LIMIT);
  expect(await isDone(Promise.race([batchEntered, late.work]))).toBe(false);
  inside.reservation.release();
  expect(await isDone(batchEntered)).toBe(true);
  expect(await isDone(late.work)).toBe(false);
  batch.release();
  await late.work;
});
