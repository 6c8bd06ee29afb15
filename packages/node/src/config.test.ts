import { expect, it } from "vitest";
import { readConfig } from "./config.ts";
import { readHostNetwork } from "./host/host-network.ts";
import { inRanges } from "./network/ranges.ts";

it("adds the operator's ranges to those that nothing reaches", async () => {
  expect(readConfig({}).neverRanges).toEqual([]);
  const { neverRanges } = readConfig({ VIV_NEVER_RANGES: "8.8.4.4, 9.9.9.0/24," });
  expect(neverRanges).toEqual(["8.8.4.4/32", "9.9.9.0/24"]);
  const isNever = inRanges((await readHostNetwork(["9.9.9.9"], neverRanges)).never);
  expect(["8.8.4.4", "9.9.9.200", "10.1.2.3"].filter(isNever)).toHaveLength(3);
  expect(["198.51.100.7", "203.0.113.7", "255.255.255.255"].filter(isNever)).toHaveLength(3);
  expect(["8.8.4.5", "9.9.8.1"].filter(isNever)).toEqual([]);
});

it("refuses a range that could be misread", () => {
  for (const wrong of [
    "8.8.4",
    "8.8.4.4/33",
    "8.8.4.4/0",
    "8.8.4.4/",
    "8.8.4.4/8/8",
    "2001:db8::/32",
    "db.example",
  ]) {
    expect(() => readConfig({ VIV_NEVER_RANGES: `1.1.1.1,${wrong}` })).toThrow(
      `VIV_NEVER_RANGES names "${wrong}"`,
    );
  }
});
