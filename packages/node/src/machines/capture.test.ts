import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { expect, it, onTestFinished } from "vitest";
import { DiskGate } from "../disks/gate.ts";
import { SumsThread } from "../snapshots/sums-thread.ts";
import { type CaptureInput, capture } from "./capture.ts";
import type { Machine } from "./machine.ts";

it("leaves the guest alone if the disk has no space at all for its snapshot", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "capture-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const touched: string[] = [];
  const touch = async (what: string) => void touched.push(what);
  const machine = { isRunning: true, agent: { command: touch }, qmp: { execute: touch } };
  const input = {
    machine: machine as unknown as Machine,
    machineDir: path.join(dir, "machine"),
    target: path.join(dir, "target"),
    announce: () => touch("journal"),
    hold: true,
  } as CaptureInput;
  const gate = new DiskGate([dir], Number.MAX_SAFE_INTEGER);
  const sums = new SumsThread({ log: createLog("test", "silent") });
  onTestFinished(() => sums.close());
  await expect(capture({ gate, sums }, input)).rejects.toMatchObject({ code: "disk_pressure" });
  expect([touched, await readdir(dir)]).toEqual([[], []]);
});
