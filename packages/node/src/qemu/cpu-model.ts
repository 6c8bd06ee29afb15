/**
 * CPU models of guests: QEMU's `-cpu` argument of each, and what of it a manifest records. `host` is the CPU of the host
 * under KVM, and all that QEMU can emulate without it. `x86-64-v2` to `x86-64-v4` are the levels of the x86-64 psABI, for
 * pools of unlike hosts. Any other name is a model of QEMU's own (`qemu-system-x86_64 -cpu help`).
 */
import { z } from "zod";
import { describeHostCpu, guestFeaturesOf, type HostCpu } from "./host-cpu.ts";

export type Accelerator = "kvm" | "tcg";

/**
 * Features that each level adds to the one before, as `/proc/cpuinfo` names them. First those of the psABI, then what
 * every server CPU of that level has besides, and what guests are slow or less safe without.
 */
const ADDED = {
  "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 aes pclmulqdq rdtscp",
  "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave fsgsbase rdrand smep xsaveopt",
  "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
};
type Level = keyof typeof ADDED;
const LEVELS = Object.keys(ADDED) as Level[];
/** The highest level that QEMU emulates: it has no AVX-512. */
const EMULATED_LEVEL: Level = "x86-64-v3";

const isLevel = (model: string): model is Level => Object.hasOwn(ADDED, model);

const flagsOf = (level: Level): string[] =>
  LEVELS.slice(0, LEVELS.indexOf(level) + 1).flatMap((each) => ADDED[each].split(" "));

/** The CPU that a saved state was made with, in words of the operator. Absent in manifests of earlier versions. */
export const GuestCpu = z.object({
  /** As `VIV_CPU_MODEL` names it; `max` for all that QEMU can emulate. */
  model: z.string(),
  /** With KVM and the model `host`: the host's CPU. */
  host: z.string().optional(),
  /**
   * Beside `host`: the features that the guest saw. A host of the same name can have fewer, by its firmware, its kernel's
   * options, or because it is a virtual machine itself. Absent in manifests of earlier versions.
   */
  features: z.array(z.string()).optional(),
  /**
   * With KVM and any other model: the vendor of the host's CPU. A guest sees it whatever its model is, and its kernel
   * has chosen instructions by it when it booted.
   */
  vendor: z.string().optional(),
});
export type GuestCpu = z.infer<typeof GuestCpu>;

export function guestCpuOf(accelerator: Accelerator, model: string, host = describeHostCpu): GuestCpu {
  if (accelerator === "tcg") return { model: model === "host" ? "max" : model };
  const here = host();
  if (model !== "host") return { model, vendor: here.vendor };
  return { model, host: here.name, features: guestFeaturesOf(here) };
}

/** No nested virtualisation, and under KVM no performance counters of the host. */
const CLOSED = { kvm: ["vmx=off", "svm=off", "pmu=off"], tcg: ["vmx=off", "svm=off"] };
/**
 * Under emulation, an instruction that copies bytes is several times slower than one that copies words; protection keys
 * and a fifth level of page tables cost time and help no guest.
 */
const EMULATED = "max,pku=off,la57=off,erms=off,fsrm=off,svm=off";
/**
 * Under KVM a guest has no other timer than that of its APIC: it needs the deadline mode, which KVM has on every host.
 * With `arat` its kernel trusts this timer while it is idle.
 */
const TIMER = { kvm: ["arat=on", "tsc-deadline=on"], tcg: [] };

/** QEMU's `-cpu` argument. Enforced: QEMU refuses to start where a feature of the model is missing. */
export function cpuArgument(accelerator: Accelerator, model: string): string {
  if (model === "host")
    return accelerator === "tcg" ? EMULATED : ["host", "migratable=on", ...CLOSED.kvm].join(",");
  const named = isLevel(model)
    ? ["qemu64", `model-id=${model}`, ...flagsOf(model).map((flag) => `${qemuName(flag)}=on`)]
    : [model];
  return [...named, "enforce=on", ...TIMER[accelerator], ...CLOSED[accelerator]].join(",");
}

const qemuName = (flag: string) => flag.replace("sse4_", "sse4.").replace("_", "-");

/** How QEMU says that a model, or a feature of it, does not exist here. */
export const LACKS_MODEL = /doesn't support requested feature|unable to find CPU model/;

/** One line of the features that QEMU lacks; it writes a line for each. A processor may have more than its KVM offers. */
export function lackIn(said: string): string {
  const features = [...said.matchAll(/doesn't support requested feature: (\S+)/g)].map(([, name]) => name);
  return features.length > 0 ? `QEMU has no ${features.join(", ")} here` : said.trim();
}

/** Why guests of this model cannot be made here; undefined if they can, or only QEMU knows. */
export function whyNoModel(accelerator: Accelerator, model: string, host: HostCpu): string | undefined {
  if (!isLevel(model)) return undefined;
  if (accelerator === "kvm") {
    const missing = missingOf(model, host);
    return missing.length === 0
      ? undefined
      : `this host's CPU, ${host.name}, has no ${missing.join(", ")} and provides ${levelOf(host) ?? "no level"}`;
  }
  if (LEVELS.indexOf(model) <= LEVELS.indexOf(EMULATED_LEVEL)) return undefined;
  return `QEMU's emulation has no AVX-512 and provides ${EMULATED_LEVEL}`;
}

/**
 * Why a state that was saved with this CPU does not continue on this host; undefined if it does. What is emulated is the
 * same on every host.
 */
export function whyUnfit(accelerator: Accelerator, cpu: GuestCpu, host: HostCpu): string | undefined {
  if (accelerator === "tcg") return undefined;
  if (cpu.model === "host") {
    const lacking = (cpu.features ?? []).filter((name) => !host.flags.has(name));
    if (cpu.host === host.name && lacking.length === 0) return undefined;
    return misfit(`KVM and the CPU of its host, ${cpu.host}`, host, lacking);
  }
  const made = `KVM and the CPU model ${cpu.model} on a CPU of ${cpu.vendor}`;
  if (cpu.vendor !== host.vendor) return misfit(made, host);
  const missing = isLevel(cpu.model) ? missingOf(cpu.model, host) : [];
  return missing.length === 0 ? undefined : misfit(made, host, missing);
}

const misfit = (made: string, host: HostCpu, lacking: string[] = []) =>
  `it was made with ${made}; this host's CPU is ${host.name}, which provides ${levelOf(host) ?? "no level"}` +
  `${lacking.length === 0 ? "" : `, without ${lacking.join(", ")}`}. ` +
  "Continue it on a host that fits; for hosts that are to share states, set VIV_CPU_MODEL to a level that all of them provide, and set up again";

const missingOf = (level: Level, { flags }: HostCpu) => flagsOf(level).filter((flag) => !flags.has(flag));

const levelOf = (host: HostCpu): Level | undefined =>
  LEVELS.findLast((level) => missingOf(level, host).length === 0);
