import { describe, expect, test } from "vitest";
import { cpuArgument, guestCpuOf, lackIn, whyNoModel, whyUnfit } from "./cpu-model.ts";
import { describeHostCpu, type HostCpu } from "./host-cpu.ts";

const V2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 aes pclmulqdq rdtscp";
const V3 = `${V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave fsgsbase rdrand smep xsaveopt`;
const V4 = `${V3} avx512f avx512bw avx512cd avx512dq avx512vl`;

function host(name: string, flags: string, vendor = "AuthenticAMD"): HostCpu {
  const info = `processor\t: 0\nvendor_id\t: ${vendor}\ncpu family\t: 25\nmodel\t\t: 1\nmodel name\t: ${name}\nflags\t\t: ${flags}\n\n`;
  return describeHostCpu(info);
}
const rome = host("AMD EPYC 7402", V3);
const genoa = host("AMD EPYC 9354", V4);
const xeon = host("Intel Xeon 8481C", V4, "GenuineIntel");
const old = host("AMD Opteron 6386", V2);

test("a host is described by its name, and what identifies the model where the name does not", () => {
  expect(rome.name).toBe("AMD EPYC 7402 (AuthenticAMD, family 25, model 1)");
  expect(rome.flags.has("avx2")).toBe(true);
  expect(describeHostCpu().flags.has("sse2")).toBe(true);
});

describe("QEMU's argument", () => {
  test.each(["host", "x86-64-v2", "x86-64-v3", "x86-64-v4", "EPYC-Rome"])(
    "of %s under KVM offers neither nested virtualisation nor performance counters",
    (model) => {
      const words = cpuArgument("kvm", model).split(",");
      expect(words).toEqual(expect.arrayContaining(["vmx=off", "svm=off", "pmu=off"]));
      expect(words.filter((word) => /^(vmx|svm|pmu)=on$/.test(word))).toEqual([]);
    },
  );

  test("of the host stays one that can be saved, and every other model is enforced", () => {
    expect(cpuArgument("kvm", "host")).toMatch(/^host,migratable=on,/);
    for (const accelerator of ["kvm", "tcg"] as const)
      for (const model of ["x86-64-v2", "x86-64-v3", "EPYC-Rome"])
        expect(cpuArgument(accelerator, model).split(",")).toContain("enforce=on");
  });

  test("of a level is QEMU's common model with the features of that level and those below", () => {
    const words = (model: string) => cpuArgument("tcg", model).split(",");
    expect(words("x86-64-v2")[0]).toBe("qemu64");
    expect(words("x86-64-v2")).toEqual(expect.arrayContaining(["sse4.2=on", "lahf-lm=on", "popcnt=on"]));
    expect(words("x86-64-v2")).not.toContain("avx2=on");
    expect(words("x86-64-v3")).toEqual(expect.arrayContaining([...words("x86-64-v2").slice(2), "avx2=on"]));
    expect(words("x86-64-v3")).not.toContain("avx512f=on");
    expect(words("x86-64-v4")).toContain("avx512vl=on");
  });

  test("has the timer that a guest under KVM depends on, whatever its model", () => {
    for (const model of ["x86-64-v2", "EPYC-Rome"])
      expect(cpuArgument("kvm", model).split(",")).toEqual(
        expect.arrayContaining(["tsc-deadline=on", "arat=on"]),
      );
    expect(cpuArgument("tcg", "x86-64-v2")).not.toContain("tsc-deadline");
  });

  test("under emulation is by default everything that QEMU emulates", () => {
    expect(cpuArgument("tcg", "host")).toMatch(/^max,/);
    expect(guestCpuOf("tcg", "host")).toEqual({ model: "max" });
    expect(guestCpuOf("tcg", "x86-64-v3")).toEqual({ model: "x86-64-v3" });
  });
});

describe("a model that this host does not have", () => {
  test("is named with what is missing and what the host provides", () => {
    expect(whyNoModel("kvm", "x86-64-v4", rome)).toBe(
      `this host's CPU, ${rome.name}, has no avx512f, avx512bw, avx512cd, avx512dq, avx512vl and provides x86-64-v3`,
    );
    expect(whyNoModel("kvm", "x86-64-v2", host("Old", "sse2"))).toContain("provides no level");
    expect(whyNoModel("tcg", "x86-64-v4", genoa)).toContain("provides x86-64-v3");
  });

  test("is not one that it has, or that only QEMU knows", () => {
    for (const model of ["host", "x86-64-v2", "x86-64-v3"]) {
      expect(whyNoModel("kvm", model, rome)).toBeUndefined();
      expect(whyNoModel("tcg", model, old)).toBeUndefined();
    }
    expect(whyNoModel("kvm", "x86-64-v4", genoa)).toBeUndefined();
    expect(whyNoModel("kvm", "EPYC-Rome", old)).toBeUndefined();
  });
});

describe("a state that was saved with KVM", () => {
  const saved = (model: string, on: HostCpu) => guestCpuOf("kvm", model, () => on);

  test("on the host's own CPU continues on that model alone, and both are named", () => {
    expect(whyUnfit("kvm", saved("host", rome), rome)).toBeUndefined();
    const why = whyUnfit("kvm", saved("host", rome), genoa);
    expect(why).toContain(`made with KVM and the CPU of its host, ${rome.name}`);
    expect(why).toContain(`this host's CPU is ${genoa.name}, which provides x86-64-v4`);
    expect(why).toContain("set VIV_CPU_MODEL");
  });

  test("on the host's own CPU does not continue on one of that name with fewer features, which are named", () => {
    const masked = host("AMD EPYC 9354", `${V3} avx512f`);
    const why = whyUnfit("kvm", saved("host", genoa), masked);
    expect(why).toContain(`made with KVM and the CPU of its host, ${genoa.name}`);
    expect(why).toContain(
      `this host's CPU is ${masked.name}, which provides x86-64-v3, without avx512bw, avx512cd, avx512dq, avx512vl.`,
    );
    // More features are no harm, and neither are flags that only the kernel makes.
    expect(whyUnfit("kvm", saved("host", masked), genoa)).toBeUndefined();
    expect(
      whyUnfit("kvm", saved("host", host("AMD EPYC 9354", `${V4} rep_good pti`)), genoa),
    ).toBeUndefined();
    // A manifest of an earlier version has no features.
    expect(whyUnfit("kvm", { model: "host", host: genoa.name }, masked)).toBeUndefined();
  });

  test("on the host's own CPU names what another model lacks, too", () => {
    expect(whyUnfit("kvm", saved("host", genoa), rome)).toMatch(
      /provides x86-64-v3, without avx512bw, .*avx512vl\./,
    );
  });

  test("on a common level continues on every host of that vendor that provides it", () => {
    for (const here of [rome, genoa]) {
      expect(whyUnfit("kvm", saved("x86-64-v3", rome), here)).toBeUndefined();
      expect(whyUnfit("kvm", saved("x86-64-v3", genoa), here)).toBeUndefined();
    }
    const why = whyUnfit("kvm", saved("x86-64-v3", rome), old);
    expect(why).toContain("KVM and the CPU model x86-64-v3 on a CPU of AuthenticAMD");
    expect(why).toContain(`this host's CPU is ${old.name}, which provides x86-64-v2, without avx, avx2`);
  });

  test("does not continue on a CPU of another vendor, which its kernel has not prepared for", () => {
    for (const model of ["x86-64-v3", "EPYC-Rome"]) {
      const why = whyUnfit("kvm", saved(model, rome), xeon);
      expect(why).toContain(`KVM and the CPU model ${model} on a CPU of AuthenticAMD`);
      expect(why).toContain(xeon.name);
    }
  });
});

test("a state that was saved emulated continues on every host", () => {
  for (const model of ["host", "x86-64-v3", "Haswell"])
    for (const here of [old, xeon]) expect(whyUnfit("tcg", guestCpuOf("tcg", model), here)).toBeUndefined();
});

test("what QEMU lacks is named in one line", () => {
  const line = (feature: string) =>
    `qemu-system-x86_64: warning: host doesn't support requested feature: CPUID.${feature} [bit 5]\n`;
  const said = `QEMU did not start: ${line("07H:EBX.avx2")}${line("01H:ECX.avx")}Host doesn't support requested features`;
  expect(lackIn(said)).toBe("QEMU has no CPUID.07H:EBX.avx2, CPUID.01H:ECX.avx here");
  expect(lackIn("unable to find CPU model 'x'\n")).toBe("unable to find CPU model 'x'");
});
