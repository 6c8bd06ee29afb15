import { expect, it } from "vitest";
import {
  deviceArguments,
  deviceArgumentsHash,
  hasSpareDisk,
  JAIL_PATHS,
  loadArguments,
  unrecordedDevices,
} from "./arguments.ts";
import { readHostCpu } from "./host-cpu.ts";

const INFO = (model: string, flags: string) =>
  [0, 1]
    .map((processor) =>
      [
        `processor\t: ${processor}`,
        "vendor_id\t: GenuineIntel",
        "cpu family\t: 6",
        "model\t\t: 143",
        `model name\t: ${model}`,
        `cpu MHz\t\t: ${2_000 + processor}.5`,
        `flags\t\t: ${flags}`,
      ].join("\n"),
    )
    .join("\n\n");

it("identifies a CPU by its model, not by its speed or the flags that the kernel shows", () => {
  const cpu = readHostCpu(INFO("Xeon 8481C @ 2.70GHz", "fpu sse2"));
  expect(cpu).toBe("GenuineIntel / 6 / 143 / Xeon 8481C @ 2.70GHz");
  expect(readHostCpu(INFO("Xeon 8481C @ 2.70GHz", "fpu sse2 avx512f"))).toBe(cpu);
  expect(readHostCpu(INFO("EPYC", "fpu sse2"))).not.toBe(cpu);
  expect(readHostCpu()).toMatch(/\w/);
});

it("a state of an earlier version that was saved with KVM fits the same CPU only, an emulated one every host", () => {
  const fits = (accelerator: "kvm" | "tcg", cpu: string) =>
    deviceArgumentsHash({ accelerator }, ["-smp", "1"], () => cpu);
  expect(fits("kvm", "one")).toBe(fits("kvm", "one"));
  expect(fits("kvm", "one")).not.toBe(fits("kvm", "other"));
  expect(fits("tcg", "one")).toBe(fits("tcg", "other"));
});

it("the hash of a state whose manifest names its CPU is the same on every host", () => {
  const hash = (cpu: string) =>
    deviceArgumentsHash(
      { accelerator: "kvm", cpu: { model: "host", host: "one" } },
      ["-smp", "1"],
      () => cpu,
    );
  expect(hash("one")).toBe(hash("other"));
});

it("a model decides the CPU alone; devices that no manifest recorded keep the CPU of their time", () => {
  for (const accelerator of ["kvm", "tcg"] as const) {
    const shape = { accelerator, vcpus: 1, memMb: 1024 };
    const [host, level] = [deviceArguments(shape), deviceArguments(shape, "x86-64-v3")];
    expect(host.filter((word, at) => word !== level[at])).toHaveLength(1);
    expect(host[host.indexOf("-cpu") + 1]).not.toBe(level[level.indexOf("-cpu") + 1]);
  }
  const old = (accelerator: "kvm" | "tcg") => unrecordedDevices({ accelerator, vcpus: 1, memMb: 1024 });
  expect(old("kvm")).toContain("host,migratable=on");
  expect(old("tcg")).toContain("max,pku=off,la57=off,erms=off,fsrm=off");
});

it("a sealed machine's own disk is encrypted, above one that is not; the key is in a file that is named", () => {
  const shape = { accelerator: "tcg", vcpus: 1, memMb: 1024 } as const;
  const nodesOf = (isSealed: boolean) =>
    loadArguments(shape, [], isSealed)
      .filter((word) => word.startsWith("{"))
      .map((word) => JSON.parse(word));
  const disk = (isSealed: boolean) => nodesOf(isSealed).find((node) => node["node-name"] === "disk");
  expect(disk(true)).toEqual({
    ...disk(false),
    backing: "under",
    encrypt: { format: "luks", "key-secret": "disk-key" },
  });
  const under = { driver: "qcow2", backing: "layer", "read-only": true };
  expect(nodesOf(true)).toContainEqual({ ...under, "node-name": "under", file: "under-file" });
  const words = loadArguments(shape, [], true);
  expect(words).toContain(`secret,id=disk-key,file=${JAIL_PATHS.diskKey}`);
  // The devices do not depend on it: a state loads with those that it was made with.
  expect(loadArguments(shape, []).filter((word) => !words.includes(word))).toHaveLength(1);
});

it("what is baked has a spare disk without a medium; a state of an earlier version has none, and loads as it did", () => {
  const shape = { accelerator: "tcg", vcpus: 1, memMb: 1024 } as const;
  const [devices, before] = [deviceArguments(shape), unrecordedDevices(shape)];
  expect([hasSpareDisk(devices), hasSpareDisk(before)]).toEqual([true, false]);
  const mediumIn = (words: string[]) => words.filter((word) => word.includes("null-co"));
  expect(mediumIn(loadArguments(shape, devices))).toHaveLength(1);
  expect(mediumIn(loadArguments(shape, before))).toEqual([]);
});
