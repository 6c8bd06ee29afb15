import { expect, it } from "vitest";
import { deviceArgumentsHash } from "./arguments.ts";
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

it("a state saved with KVM fits the same CPU only, an emulated one every host", () => {
  const fits = (accelerator: "kvm" | "tcg", cpu: string) =>
    deviceArgumentsHash({ accelerator }, ["-smp", "1"], () => cpu);
  expect(fits("kvm", "one")).toBe(fits("kvm", "one"));
  expect(fits("kvm", "one")).not.toBe(fits("kvm", "other"));
  expect(fits("tcg", "one")).toBe(fits("tcg", "other"));
});
