import { expect, test } from "vitest";
import { fail, ok, warn } from "../doctor/finding.ts";
import { renderFindings } from "./findings.ts";

test("every lack says what it costs and what to do", () => {
  const findings = [ok("QEMU", "10.0.2"), warn("KVM", "no /dev/kvm", "slow", "turn it on")];
  expect(renderFindings(findings).split("\n")).toEqual([
    "ok   QEMU  10.0.2",
    "WARN KVM   no /dev/kvm",
    "           costs: slow",
    "           to do: turn it on",
    "",
    "Sessions run here; 1 of 2 checks have a cost.",
  ]);
});

test("a failed check is the last word", () => {
  expect(renderFindings([fail("images", "none", "no machine")])).toContain("cannot run here yet: 1 of 1");
  expect(renderFindings([ok("a", "b")])).toContain("as it should be");
});
