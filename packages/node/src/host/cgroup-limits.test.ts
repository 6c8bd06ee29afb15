import { GIB, MIB } from "@vivarium/kit/sizes";
import { expect, test } from "vitest";
import { limitsOf, USED } from "./cgroup-limits.ts";

const SMALL = { accelerator: "kvm", vcpus: 1, memMb: 1024 } as const;

const valuesOf = (shape: Parameters<typeof limitsOf>[0], hostBytes = 64 * GIB) =>
  Object.fromEntries(
    limitsOf(shape, { controllers: USED, hostBytes }).map(({ file, value }) => [file, value]),
  );

test("a machine may have all threads that QEMU makes for its disk, beside vCPUs and helpers", () => {
  expect(Number(valuesOf(SMALL)["pids.max"])).toBeGreaterThanOrEqual(64 + 1 + 4);
  expect(Number(valuesOf({ ...SMALL, vcpus: 4 })["pids.max"])).toBeGreaterThanOrEqual(64 + 4 + 4);
});

test("memory is the guest's and what QEMU needs; page cache is slowed before the limit is reached", () => {
  const { "memory.max": max, "memory.high": high, ...others } = valuesOf(SMALL);
  expect(Number(max)).toBe(1280 * MIB);
  expect(Number(high)).toBe(1216 * MIB);
  expect(others).toMatchObject({ "memory.oom.group": "1", "memory.swap.max": "0" });
});

test("an emulated machine may also keep translated code, as much as QEMU keeps on such a host", () => {
  const emulated = { ...SMALL, accelerator: "tcg" } as const;
  expect(Number(valuesOf(emulated)["memory.max"])).toBe(1280 * MIB + GIB);
  expect(Number(valuesOf(emulated, 4 * GIB)["memory.max"])).toBe(1280 * MIB + 512 * MIB);
});

test("processor and disk are shared by the number of vCPUs", () => {
  expect(valuesOf(SMALL)).toMatchObject({
    ...{ "cpu.max": "100000 100000", "cpu.weight": "100", "io.weight": "100" },
  });
  expect(valuesOf({ ...SMALL, vcpus: 4 })).toMatchObject({
    ...{ "cpu.max": "400000 100000", "cpu.weight": "400", "io.weight": "400" },
  });
});

test("limits of controllers that the host lacks are left out", () => {
  const files = limitsOf(SMALL, { controllers: ["pids"], hostBytes: GIB }).map(({ file }) => file);
  expect(files).toEqual(["pids.max"]);
});
