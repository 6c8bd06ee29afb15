import { expect, test } from "vitest";
import { assertFits, explainRefusal } from "./fit.ts";

const CPU = { vendor: "AuthenticAMD", name: "AMD EPYC 7402", flags: new Set<string>() };
const USABLE = { cpu: () => CPU, kvm: () => ({ state: "usable" }) as const };
const NO_KVM = { cpu: () => CPU, kvm: () => ({ state: "absent", why: "this host has no KVM" }) as const };

const fits = (...given: Parameters<typeof assertFits>) => expect(() => assertFits(...given)).not.toThrow();

test("a state of another CPU is refused with both names", () => {
  const other = { accelerator: "kvm", cpu: { model: "host", host: "Intel Xeon 8481C" } } as const;
  expect(() => assertFits(other, USABLE)).toThrow(
    expect.objectContaining({
      code: "snapshot_unfit",
      message: expect.stringMatching(/Intel Xeon 8481C.*AMD EPYC 7402/),
    }),
  );
  fits({ ...other, cpu: { model: "host", host: CPU.name } }, USABLE);
});

test("a state that was made with KVM is refused where there is none, also one of an earlier version", () => {
  for (const cpu of [undefined, { model: "host", host: CPU.name }]) {
    expect(() => assertFits({ accelerator: "kvm", cpu }, NO_KVM)).toThrow(
      "it was made with KVM; this host has no KVM",
    );
    fits({ accelerator: "kvm", cpu }, USABLE);
  }
});

test("a model of QEMU's own that QEMU refuses is refused with both names, and other failures stay as they are", () => {
  const saved = { accelerator: "kvm", cpu: { model: "EPYC-Genoa", vendor: CPU.vendor } } as const;
  const lack = "warning: host doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]";
  const refused = new Error(`QEMU did not start: first\n${lack}\nlast`);
  expect(explainRefusal(saved, refused, USABLE)).toMatchObject({
    code: "snapshot_unfit",
    message: expect.stringMatching(/CPU model EPYC-Genoa.*AMD EPYC 7402.*avx512f \[bit 16\]\)$/),
  });
  const other = new Error("QEMU did not start: no memory");
  expect(explainRefusal(saved, other, USABLE)).toBe(other);
  expect(explainRefusal({ accelerator: "kvm" }, refused, USABLE)).toBe(refused);
});

test("an emulated state fits with and without KVM", () => {
  for (const here of [USABLE, NO_KVM]) fits({ accelerator: "tcg", cpu: { model: "max" } }, here);
});
