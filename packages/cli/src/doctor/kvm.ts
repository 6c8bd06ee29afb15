/**
 * Checks whether hardware virtualisation works, by booting a guest kernel. Opening /dev/kvm proves little: on some
 * hosts every guest on it dies, so only the kernel's first line on the serial port counts.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { type OpenFailure, tryOpen } from "@vivarium/kit/try-open";
import { AS_ROOT, type Finding, fail, ok, warn } from "./finding.ts";
import { QEMU } from "./tools.ts";

const BOOT_LIMIT_MS = 8000;
const SILENCE = `the kernel says nothing within ${BOOT_LIMIT_MS / 1000} s`;
const KERNEL_SPEAKS = "Linux version";
const OUTPUT_CAP_CHARS = 64 * 1024;
const COST = "machines are emulated: full isolation, but ten to a hundred times slower";
const UNKNOWN = "unknown whether machines run on it";

const DEVICE = "/dev/kvm";
/** The host has no KVM: no device, or no driver or processor behind it. */
const ABSENT = ["ENOENT", "ENODEV", "ENXIO"];

/** `accelerator`: the operator's `VIV_ACCEL`. */
export async function checkKvm(imagesDir: string, accelerator?: string): Promise<Finding> {
  if (accelerator === "tcg") return warn("KVM", "not used, as VIV_ACCEL=tcg asks", COST);
  const failure = tryOpen(DEVICE);
  if (failure) return explainFailure(failure, process.getuid?.() === 0);
  const kernel = path.join(imagesDir, "kernel", "vmlinuz");
  if (!existsSync(kernel)) {
    const found = "opens; not tried, as there is no guest kernel yet";
    return warn("KVM", found, UNKNOWN, "Run ./setup first.");
  }
  const why = await bootOnKvm(kernel);
  if (why === undefined) return ok("KVM", "works: a guest kernel boots on it");
  return warn("KVM", `opens, but a guest does not boot on it: ${why}`, COST);
}

/** A refusal is a fault of rights: set-up and the service do not emulate then, unless they are asked to. */
export function explainFailure(failure: OpenFailure, isRoot: boolean): Finding {
  if (ABSENT.includes(failure.code)) {
    const remedy =
      "Turn on virtualisation in the firmware, or nested virtualisation at the provider, then modprobe kvm_intel or kvm_amd.";
    return warn("KVM", `no KVM (${DEVICE}: ${failure.code})`, COST, remedy);
  }
  if (!isRoot) return warn("KVM", refusal(failure), UNKNOWN, AS_ROOT);
  return fail("KVM", refusal(failure), "neither set-up nor the service starts", WAYS_OUT);
}

/** Why `viv up` must not start with this `VIV_ACCEL`; undefined if it may. */
export function kvmRefusal(accelerator = "", probe = tryOpen): string | undefined {
  const failure = accelerator === "tcg" ? undefined : probe(DEVICE);
  return failure && !ABSENT.includes(failure.code) ? refusal(failure) : undefined;
}

const refusal = ({ code, rights }: OpenFailure) =>
  `${DEVICE} exists and cannot be opened: ${code}${rights === undefined ? "" : `, with mode ${rights}`}`;

export const WAYS_OUT =
  "Give root the right to open it; in a container also the device itself (--device /dev/kvm). Or set VIV_ACCEL=tcg: machines are emulated then, 10 to 100 times slower.";

/** Boots the kernel until its first line; returns the reason if that line does not come. */
async function bootOnKvm(kernel: string): Promise<string | undefined> {
  const machine = ["-M", "microvm,acpi=on,rtc=on", "-accel", "kvm", "-cpu", "host", "-m", "256"];
  const screen = ["-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot"];
  const boot = ["-kernel", kernel, "-append", "console=ttyS0 earlyprintk=serial,ttyS0 panic=-1"];
  const child = spawn(QEMU, [...machine, ...screen, ...boot], { stdio: ["ignore", "pipe", "pipe"] });
  try {
    return await watchBoot(child);
  } finally {
    child.kill("SIGKILL");
  }
}

function watchBoot(child: ChildProcess): Promise<string | undefined> {
  let serial = "";
  let complaint = "";
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(complaint || SILENCE), BOOT_LIMIT_MS);
    const finish = (result: string | undefined) => {
      clearTimeout(timer);
      resolve(result);
    };
    child.stdout?.on("data", (chunk: Buffer) => {
      serial = (serial + chunk).slice(-OUTPUT_CAP_CHARS);
      if (serial.includes(KERNEL_SPEAKS)) finish(undefined);
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      complaint = firstLine(complaint + chunk);
      // When the guest dies, QEMU does not exit: it waits for a debugger.
      if (/internal error|failed|not supported/i.test(complaint)) finish(complaint);
    });
    child.on("error", (error) => finish(error.message));
    child.on("exit", (code) => finish(complaint || `QEMU ended with exit code ${code}`));
  });
}

function firstLine(text: string): string {
  return text.trim().split("\n")[0]?.slice(0, 200) ?? "";
}
