import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { DiskGate } from "../disks/gate.ts";
import type { Machine } from "../machines/machine.ts";
import { type CaptureInput, capture } from "./capture.ts";

it("touches no guest where there is no room at all for its snapshot", async () => {
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
  await expect(capture({ gate }, input)).rejects.toMatchObject({ code: "disk_pressure" });
  expect([touched, await readdir(dir)]).toEqual([[], []]);
});
