import { expect, test } from "vitest";
import { chooseAccelerators, lookAtKvm } from "./kvm.ts";

const failing = (code: string, rights?: string) => () => lookAtKvm(() => ({ code, rights }));
const usable = () => lookAtKvm(() => undefined);

test.each([
  ["auto", ["kvm", "tcg"]],
  ["kvm", ["kvm"]],
  ["tcg", ["tcg"]],
] as const)("where KVM opens, %s tries %j", (wanted, accelerators) => {
  expect(chooseAccelerators(wanted, usable)).toEqual(accelerators);
});

test.each(["ENOENT", "ENODEV", "ENXIO"])("a host without KVM (%s) emulates, unless KVM is wanted", (code) => {
  expect(chooseAccelerators("auto", failing(code))).toEqual(["tcg"]);
  expect(chooseAccelerators("tcg", failing(code))).toEqual(["tcg"]);
  const modules = "modprobe kvm_intel or kvm_amd";
  expect(() => chooseAccelerators("kvm", failing(code))).toThrow(modules);
});

test.each(["EACCES", "EPERM", "EIO"])(
  "a KVM that cannot be opened (%s) is refused with mode and owner and both ways out, never emulated unasked",
  (code) => {
    for (const wanted of ["auto", "kvm"] as const) {
      const choose = () => chooseAccelerators(wanted, failing(code, "0600 of 0:36"));
      expect(choose).toThrow(`/dev/kvm exists and cannot be opened: ${code}, with mode 0600 of 0:36.`);
      expect(choose).toThrow("Give this process");
      expect(choose).toThrow("set VIV_ACCEL=tcg");
    }
    expect(chooseAccelerators("tcg", failing(code))).toEqual(["tcg"]);
  },
);
