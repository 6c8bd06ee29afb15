/**
 * Whether this process may use KVM, and the accelerators that follow from it. A host without KVM emulates; one whose KVM
 * merely lacks rights must not do so unnoticed, so that is refused.
 */
import { type OpenFailure, tryOpen } from "@vivarium/kit/try-open";
import type { Accelerator } from "../qemu/cpu-model.ts";

const DEVICE = "/dev/kvm";
/** The host has no KVM: no device, or no driver or processor behind it. */
const ABSENT = ["ENOENT", "ENODEV", "ENXIO"];

export type Kvm = { state: "usable" } | { state: "absent" | "refused"; why: string };

export function lookAtKvm(probe: (file: string) => OpenFailure | undefined = tryOpen): Kvm {
  const failure = probe(DEVICE);
  if (!failure) return { state: "usable" };
  const { code, rights } = failure;
  if (ABSENT.includes(code))
    return {
      state: "absent",
      why: `this host has no KVM (${DEVICE}: ${code}): turn on virtualisation in the firmware or at the provider, then modprobe kvm_intel or kvm_amd`,
    };
  return {
    state: "refused",
    why:
      `${DEVICE} exists and cannot be opened: ${code}${rights === undefined ? "" : `, with mode ${rights}`}. ` +
      `Give this process (uid ${process.getuid?.()}) the right to open it for reading and writing; in a container also ` +
      "the device itself (--device /dev/kvm). Or set VIV_ACCEL=tcg: machines are emulated then, 10 to 100 times slower",
  };
}

/**
 * The accelerators to try, in order. With `auto`, a host whose KVM opens may still be one on which no guest boots, so
 * emulation is tried after it.
 */
export function chooseAccelerators(wanted: "auto" | Accelerator, look = lookAtKvm): Accelerator[] {
  if (wanted === "tcg") return ["tcg"];
  const kvm = look();
  if (kvm.state === "usable") return wanted === "kvm" ? ["kvm"] : ["kvm", "tcg"];
  if (kvm.state === "absent" && wanted === "auto") return ["tcg"];
  throw new Error(kvm.why);
}
