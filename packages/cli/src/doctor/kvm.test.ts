import { expect, test } from "vitest";
import { explainFailure, kvmRefusal } from "./kvm.ts";

test.each(["ENOENT", "ENODEV", "ENXIO"])(
  "a host without KVM (%s) is emulated at a cost, with a remedy",
  (code) => {
    const finding = explainFailure({ code }, true);
    expect(finding).toMatchObject({ status: "warn", remedy: expect.stringContaining("modprobe") });
    expect(finding.cost).toContain("emulated");
    expect(kvmRefusal("auto", () => ({ code }))).toBeUndefined();
  },
);

test.each(["EACCES", "EPERM"])(
  "a KVM that root may not open (%s) is a failure with both ways out",
  (code) => {
    const failure = { code, rights: "0600 of 0:36" };
    const found = `/dev/kvm exists and cannot be opened: ${code}, with mode 0600 of 0:36`;
    expect(explainFailure(failure, true)).toMatchObject({
      status: "fail",
      found,
      remedy: expect.stringMatching(/right to open it.*VIV_ACCEL=tcg/),
    });
    for (const wanted of [undefined, "auto", "kvm"]) expect(kvmRefusal(wanted, () => failure)).toBe(found);
  },
);

test("emulation that was asked for needs no KVM, and one that opens is no refusal", () => {
  expect(kvmRefusal("tcg", () => ({ code: "EPERM" }))).toBeUndefined();
  expect(kvmRefusal("auto", () => undefined)).toBeUndefined();
});

test("for another user than root it is unknown", () => {
  expect(explainFailure({ code: "EACCES" }, false)).toMatchObject({
    status: "warn",
    cost: expect.stringMatching(/^unknown/),
    remedy: "Run viv doctor as root.",
  });
});
