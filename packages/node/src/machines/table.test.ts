import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import type { AgentClient } from "../guest/client.ts";
import type { Qmp } from "../qemu/qmp.ts";
import type { JournalEntry } from "./journal.ts";
import { Machine } from "./machine.ts";
import { MachineTable } from "./table.ts";

/** Adds a machine to a table and ends its QEMU. Returns what the table then says of it. */
async function endOf({ reported, kill }: { reported?: string; kill?: string }) {
  const { promise: closed, resolve: close } = Promise.withResolvers<void>();
  const listeners: ((event: string, data: object) => void)[] = [];
  const onEvent = (listener: (event: string, data: object) => void) => listeners.push(listener);
  const table = new MachineTable({ memoryKillOf: (slot) => (slot.number === 7 ? kill : undefined) });
  table.add(
    new Machine({
      entry: { machine_id: "m-1", state: "running", slot: 7 } as JournalEntry,
      process: identify(process.pid) as NonNullable<ReturnType<typeof identify>>,
      qmp: { onEvent, closed } as unknown as Qmp,
      agent: { close() {} } as unknown as AgentClient,
    }),
  );
  if (reported !== undefined) for (const listener of listeners) listener("SHUTDOWN", { reason: reported });
  close();
  await closed;
  await Promise.resolve();
  return table.list();
}

const ended = (reason: string) => [{ machine_id: "m-1", state: "ended", reason }];

test("a machine that its memory limit ended is listed with that reason", async () => {
  expect(await endOf({ kill: "it needed more memory than its limit" })).toEqual(
    ended("it needed more memory than its limit"),
  );
});

test("what QEMU reports comes before what the cgroup says", async () => {
  const list = await endOf({ reported: "guest-shutdown", kill: "it needed more memory than its limit" });
  expect(list).toEqual(ended("it was powered off from inside"));
});

test("a machine that ended for no known reason says so", async () => {
  expect(await endOf({})).toEqual(ended("its process ended unexpectedly"));
});
