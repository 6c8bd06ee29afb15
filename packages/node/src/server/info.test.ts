import { expect, test } from "vitest";
import { summarize } from "./info.ts";

test.each([
  [["kvm", "kvm"], { isolation: "kvm" }],
  [["kvm", "emulated", "emulated"], { isolation: "mixed", emulated_states: 2 }],
  [["emulated"], { isolation: "emulated" }],
  [[], { isolation: "emulated" }],
] as const)("states and machines of %j are %j", (all, expected) => {
  expect(summarize(all)).toEqual(expected);
});
