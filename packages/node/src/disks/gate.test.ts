import { statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { expect, it } from "vitest";
import { DiskGate } from "./gate.ts";

async function freeBytes(): Promise<number> {
  const { bavail, bsize } = await statfs(tmpdir());
  return bavail * bsize;
}

const refused = { code: "disk_pressure" };

it("counts reservations of others until they are released", async () => {
  const half = (await freeBytes()) / 2;
  const gate = new DiskGate([tmpdir()], half);
  const release = await gate.reserve(half * 0.7);
  await expect(gate.reserve(half * 0.6)).rejects.toMatchObject(refused);
  release();
  await expect(gate.reserve(half * 0.6)).resolves.toBeTypeOf("function");
});

it("reserves nothing if it refuses, and releases once", async () => {
  const half = (await freeBytes()) / 2;
  const gate = new DiskGate([tmpdir()], half);
  await expect(gate.reserve(half * 3)).rejects.toMatchObject(refused);
  const release = await gate.reserve(half * 0.3);
  await gate.reserve(half * 0.3);
  release();
  release();
  await expect(gate.reserve(half * 0.6)).resolves.toBeTypeOf("function");
  await expect(gate.reserve(half * 0.3)).rejects.toMatchObject(refused);
});

it("never admits two concurrent reservations that fit only one at a time", async () => {
  const half = (await freeBytes()) / 2;
  const gate = new DiskGate([tmpdir()], half);
  const answers = await Promise.allSettled([gate.reserve(half * 0.6), gate.reserve(half * 0.6)]);
  expect(answers.filter(({ status }) => status === "rejected").length).toBeGreaterThanOrEqual(1);
});

it("has no space below the floor, or if one of its directories has none", async () => {
  const free = await freeBytes();
  expect(await new DiskGate([tmpdir()], free * 2).hasSpace()).toBe(false);
  expect(await new DiskGate([tmpdir()], free / 2).hasSpace()).toBe(true);
  expect(await new DiskGate([tmpdir(), "/proc"], 1).hasSpace()).toBe(false);
});

it("refuses everything if a directory cannot be read, and reserves nothing", async () => {
  const gate = new DiskGate(["/no/such/directory"], 0);
  await expect(gate.reserve(1)).rejects.toMatchObject({ code: "ENOENT" });
});

it("reports what would be refused now, without a reservation", async () => {
  const half = (await freeBytes()) / 2;
  const gate = new DiskGate([tmpdir()], half);
  expect([await gate.hasSpace(half * 0.6), await gate.hasSpace(half * 3)]).toEqual([true, false]);
  await expect(gate.check(half * 3)).rejects.toMatchObject(refused);
  await gate.check(half * 0.6);
  await gate.reserve(half * 0.6);
  await expect(gate.check(half * 0.6)).rejects.toMatchObject(refused);
});
