/** The host's clock frequency in kHz. Under emulation the guest kernel cannot measure it and has to be given it. */
import { readFileSync } from "node:fs";

const FALLBACK_KHZ = 2_000_000;

export function tscKhz(): number {
  const match = /^cpu MHz\s*:\s*([\d.]+)/m.exec(readFileSync("/proc/cpuinfo", "utf8"));
  return match ? Math.round(Number(match[1]) * 1000) : FALLBACK_KHZ;
}
