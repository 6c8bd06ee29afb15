/**
 * Checks whether hardware virtualisation works, by booting a guest kernel. Opening /dev/kvm proves little: on some
 * hosts every guest on it dies, so only the kernel's first line on the serial port counts.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants, existsSync } from "node:fs";
import path from "node:path";
import { AS_ROOT, type Finding, ok, warn } from "./finding.ts";
import { QEMU } from "./tools.ts";

const BOOT_LIMIT_MS = 8000;
const SILENCE = `the kernel says nothing within ${BOOT_LIMIT_MS / 1000} s`;
const KERNEL_SPEAKS = "Linux version";
const OUTPUT_CAP_CHARS = 64 * 1024;
const COST = "machines are emulated: full isolation, but ten to a hundred times slower";
const UNKNOWN = "unknown whether machines run on it";

export async function checkKvm(imagesDir: string): Promise<Finding> {
  if (!existsSync("/dev/kvm")) {
    const remedy = "Turn on virtualisation in the firmware, or nested virtualisation at the provider.";
    return warn("KVM", "no /dev/kvm", COST, remedy);
  }
  try {
    accessSync("/dev/kvm", constants.R_OK | constants.W_OK);
  } catch {
    return warn("KVM", "/dev/kvm cannot be opened", UNKNOWN, AS_ROOT);
  }
  const kernel = path.join(imagesDir, "kernel", "vmlinuz");
  if (!existsSync(kernel)) {
    const found = "opens; not tried, as there is no guest kernel yet";
    return warn("KVM", found, UNKNOWN, "Run ./setup first.");
  }
  const failure = await bootOnKvm(kernel);
  if (failure === undefined) return ok("KVM", "works: a guest kernel boots on it");
  return warn("KVM", `opens, but a guest does not boot on it: ${failure}`, COST);
}

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
