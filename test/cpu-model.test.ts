/** The CPU model of guests stays as chosen, although `./viv` runs set-up without it; and emulation is announced. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

let dataDir: string;
let baselineDir: string;
beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), "cpu-model-"));
  baselineDir = join(dataDir, "pool/images/templates/base/1/small");
  mkdirSync(baselineDir, { recursive: true });
  symlinkSync("1", join(dataDir, "pool/images/templates/base/next"));
});
afterEach(() => rmSync(dataDir, { recursive: true }));

function shell(script: string, env: Record<string, string> = {}): string {
  return execFileSync("bash", ["-c", `set -euo pipefail\n${script}`, "bash", dataDir], {
    encoding: "utf8",
    env: { PATH: process.env.PATH, ...env },
    cwd: join(import.meta.dirname, ".."),
    stdio: ["ignore", "pipe", "pipe"],
  });
}

const fingerprint = (env?: Record<string, string>) =>
  shell('. scripts/setup/fingerprint.sh; fingerprint "$1" 2>/dev/null', env);

/** The last step of set-up, with a baseline that is baked already. */
function bake(accelerator: "kvm" | "tcg", env?: Record<string, string>): string {
  writeFileSync(join(baselineDir, "manifest.json"), JSON.stringify({ accelerator }, null, 2));
  const script = `
    exec 3>&1
    DATA_DIR=$1 CACHE_DIR=$1
    for part in steps fingerprint images; do . scripts/setup/$part.sh; done
    bake_base`;
  return shell(script, env);
}

test("a model that was baked once is taken by every later set-up, until another is chosen", () => {
  const usual = fingerprint();
  expect(fingerprint({ VIV_CPU_MODEL: "host" })).toBe(usual);
  const chosen = fingerprint({ VIV_CPU_MODEL: "x86-64-v3" });
  expect(chosen).not.toBe(usual);
  bake("kvm", { VIV_CPU_MODEL: "x86-64-v3" });
  expect(readFileSync(join(dataDir, "cpu-model"), "utf8")).toBe("x86-64-v3\n");
  expect(fingerprint()).toBe(chosen);
  bake("kvm");
  expect(fingerprint()).toBe(chosen);
  expect(fingerprint({ VIV_CPU_MODEL: "host" })).toBe(usual);
  bake("kvm", { VIV_CPU_MODEL: "host" });
  expect(fingerprint()).toBe(usual);
});

test("a baseline of the host's own CPU is made anew where a feature that guests see comes or goes, and for no flag of the kernel", () => {
  const cpu = (flags: string, model: string) => {
    const file = join(dataDir, "cpuinfo");
    writeFileSync(
      file,
      `vendor_id\t: V\nmodel name\t: N\nflags\t\t: ${flags}\n\nvendor_id\t: V\nflags\t\t: x\n`,
    );
    const script = '. scripts/setup/fingerprint.sh; guest_cpu "$1" "$1/cpuinfo" "$1"';
    return shell(script, { VIV_CPU_MODEL: model });
  };
  expect(cpu("fpu avx2 rep_good avx512f", "host")).toBe(
    "host\nvendor_id\t: V\nmodel name\t: N\navx2\navx512f\n",
  );
  expect(cpu("fpu avx2 pti avx512f", "host")).toBe(cpu("fpu avx2 rep_good avx512f", "host"));
  expect(cpu("fpu avx2", "host")).not.toBe(cpu("fpu avx2 avx512f", "host"));
  expect(cpu("fpu avx2", "x86-64-v2")).toBe(cpu("fpu", "x86-64-v2"));
});

test("emulation that was asked for is not kept once nobody asks for it", () => {
  const usual = fingerprint();
  expect(fingerprint({ VIV_ACCEL: "tcg" })).not.toBe(usual);
  expect(fingerprint({ VIV_ACCEL: "auto" })).toBe(usual);
});

test("set-up says that machines are emulated, and warns unless that was asked for", () => {
  expect(bake("tcg")).toContain("WARNING");
  expect(bake("tcg", { VIV_ACCEL: "tcg" })).toContain("emulated, as VIV_ACCEL=tcg asks");
  expect(bake("tcg", { VIV_ACCEL: "tcg" })).not.toContain("WARNING");
  expect(bake("kvm")).toBe("");
});
