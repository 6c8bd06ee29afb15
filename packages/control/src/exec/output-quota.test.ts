import { setImmediate } from "node:timers/promises";
import { FRAME, type Frame } from "@vivarium/contract/guest";
import { expect, test } from "vitest";
import { collect } from "./collect.ts";
import { FREE_BYTES, OutputQuotas } from "./output-quota.ts";

const ORG = "org";
const LIMIT = 4 * FREE_BYTES;

/** A command that writes this much and ends; says how many of its frames were read. */
function command(bytes: number) {
  const told = { frames: 0 };
  const end = {
    ...{ exit_code: 0, duration_us: 1, timed_out: false },
    ...{ stdout_truncated: false, stderr_truncated: false },
  };
  async function* frames(): AsyncGenerator<Frame> {
    for (let left = bytes; left > 0; left -= FREE_BYTES) {
      told.frames++;
      yield { type: FRAME.stdout, payload: Buffer.alloc(Math.min(left, FREE_BYTES)) };
    }
    yield { type: FRAME.exit, payload: Buffer.from(JSON.stringify(end)) };
  }
  return { told, frames: frames() };
}

async function isDone(work: Promise<unknown>): Promise<boolean> {
  let done = false;
  void work.then(() => {
    done = true;
  });
  for (let turn = 0; turn < 50; turn++) await setImmediate();
  return done;
}

const rooms = () => new OutputQuotas({ orgBytes: 2 * LIMIT });
function run(from: OutputQuotas, bytes: number, orgId = ORG) {
  const { told, frames } = command(bytes);
  const room = from.room(orgId, LIMIT);
  return { told, room, work: collect(frames, { limitBytes: LIMIT, room }) };
}

test("long outputs beyond an organisation's room are not read on until another's answer is out", async () => {
  const all = rooms();
  const first = run(all, LIMIT);
  const second = run(all, LIMIT);
  expect(await isDone(Promise.all([first.work, second.work]))).toBe(true);
  const third = run(all, LIMIT);
  expect(await isDone(third.work)).toBe(false);
  expect(third.told.frames).toBe(2);
  second.room.leave();
  second.room.leave();
  expect((await third.work).stdout.sizeBytes).toBe(LIMIT);
  const fourth = run(all, LIMIT);
  expect(await isDone(fourth.work)).toBe(false);
  first.room.leave();
  await fourth.work;
});

test("short outputs need no room, and other organisations have their own", async () => {
  const all = rooms();
  await Promise.all([run(all, LIMIT).work, run(all, LIMIT).work]);
  await run(all, FREE_BYTES).work;
  await run(all, LIMIT, "another").work;
});

test("who leaves while waiting takes nothing with it, and the next one comes in", async () => {
  const all = rooms();
  const [inside, other, waiting, next] = [LIMIT, LIMIT, LIMIT, LIMIT].map((bytes) => run(all, bytes));
  await Promise.all([inside?.work, other?.work]);
  expect(await isDone(Promise.race([waiting?.work, next?.work]))).toBe(false);
  waiting?.room.leave();
  expect(await isDone(next?.work as Promise<unknown>)).toBe(false);
  inside?.room.leave();
  await next?.work;
});

test("the commands of one answer share its room", async () => {
  const all = rooms();
  const room = all.room(ORG, 2 * LIMIT);
  const both = [command(LIMIT), command(LIMIT)];
  await Promise.all(both.map(({ frames }) => collect(frames, { limitBytes: LIMIT, room })));
  const later = run(all, LIMIT);
  expect(await isDone(later.work)).toBe(false);
  room.leave();
  await later.work;
});

test("a large answer that came first is not kept waiting by small ones", async () => {
  const all = rooms();
  const inside = run(all, LIMIT);
  await inside.work;
  const batch = all.room(ORG, 2 * LIMIT);
  const batchEntered = batch.take();
  const late = run(all, LIMIT);
  expect(await isDone(Promise.race([batchEntered, late.work]))).toBe(false);
  inside.room.leave();
  expect(await isDone(batchEntered)).toBe(true);
  expect(await isDone(late.work)).toBe(false);
  batch.leave();
  await late.work;
});
