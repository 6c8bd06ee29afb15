import { createLog } from "@vivarium/kit/log";
import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import type { AgentClient } from "../guest/client.ts";
import type { Qmp } from "../qemu/qmp.ts";
import { followClock, jumpMeter } from "./follow-clock.ts";
import type { JournalEntry } from "./journal.ts";
import { Machine } from "./machine.ts";

/** A meter over two clocks, and a way to let time pass; `jump` is what only the wall clock shows. */
function meter(): { jumpedMs: () => number; pass: (ms: number, jump?: number) => void } {
  const clock = { wall: 1_700_000_000_000, run: 5_000 };
  const pass = (ms: number, jump = 0) => {
    clock.wall += ms + jump;
    clock.run += ms;
  };
  return { jumpedMs: jumpMeter({ wallMs: () => clock.wall, runMs: () => clock.run }), pass };
}

test.each([
  ["a suspend", 3_600_000],
  ["a clock that was set back", -3_600_000],
])("%s is counted once, however far it went, and time that passes is none", (_what, jump) => {
  const { jumpedMs, pass } = meter();
  pass(5_000);
  expect(jumpedMs()).toBe(0);
  pass(5_000, jump);
  expect(jumpedMs()).toBe(jump);
  pass(5_000);
  expect(jumpedMs()).toBe(0);
});

test("differences below a second add up until they are one", () => {
  const { jumpedMs, pass } = meter();
  pass(5_000, 600);
  expect(jumpedMs()).toBe(0);
  pass(5_000, 600);
  expect(jumpedMs()).toBe(1_200);
});

test("this host, whose clock does not jump now, reports nothing", () => {
  expect(jumpMeter()()).toBe(0);
});

/** A machine whose agent notes the times that it is sent. */
function machineOf(state: JournalEntry["state"], failures = 0): { machine: Machine; times: number[] } {
  const times: number[] = [];
  const resumed = async ({ wall_clock_ns }: { wall_clock_ns: string }) => {
    times.push(Number(BigInt(wall_clock_ns) / 1_000_000n));
    if (times.length <= failures) throw new Error("no answer");
    return { reseeded: true, health: {} };
  };
  const machine = new Machine({
    entry: { machine_id: `m-${state}-${failures}`, state, slot: 1 } as JournalEntry,
    process: identify(process.pid) as NonNullable<ReturnType<typeof identify>>,
    qmp: { onEvent() {} } as unknown as Qmp,
    agent: { resumed, breakOff() {} } as unknown as AgentClient,
  });
  return { machine, times };
}

test("after a jump every running guest gets the host's time until its agent took it, whatever its neighbours do", async () => {
  const [late, running, held] = [machineOf("running", 2), machineOf("running"), machineOf("held")];
  const machines = [late, running, held].map(({ machine }) => [machine.id, machine] as const);
  const { jumpedMs, pass } = meter();
  const stop = new AbortController();
  let looks = 0;
  await followClock(
    { table: { running: new Map(machines) }, log: createLog("test", "silent") },
    stop.signal,
    {
      lookMs: 1,
      jumpedMs: () => {
        if (++looks === 2) pass(5_000, 60_000);
        if (looks === 7) stop.abort();
        return jumpedMs();
      },
    },
  );
  expect(running.times).toHaveLength(1);
  expect(Math.abs(Date.now() - (running.times[0] ?? 0))).toBeLessThan(60_000);
  expect(late.times).toHaveLength(3);
  expect(held.times).toEqual([]);
});
