import { findRange } from "@vivarium/kit/ipv4-ranges";
import { expect, it } from "vitest";
import { readConfig } from "./config.ts";
import { readHostNetwork } from "./host/host-network.ts";

it("adds the operator's ranges to those that no guest reaches", async () => {
  expect(readConfig({}).neverRanges).toEqual([]);
  const { neverRanges } = readConfig({ VIV_NEVER_RANGES: "8.8.4.4, 9.9.9.0/24," });
  expect(neverRanges).toEqual(["8.8.4.4/32", "9.9.9.0/24"]);
  const { never } = await readHostNetwork(["9.9.9.9"], neverRanges);
  const isNever = (address: string) => findRange(never, address) !== undefined;
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

it("reads counts; an empty value means the default", () => {
  const usual = { maxMachines: 128, warmMachines: 1, diskFloorBytes: undefined, closeSmtp: false };
  expect(readConfig({})).toMatchObject(usual);
  expect(readConfig({ VIV_MAX_MACHINES: "", VIV_DISK_FLOOR_BYTES: "", VIV_CLOSE_SMTP: "" })).toMatchObject(
    usual,
  );
  const set = {
    VIV_MAX_MACHINES: "4",
    VIV_WARM_MACHINES: "0",
    VIV_DISK_FLOOR_BYTES: "0",
    VIV_CLOSE_SMTP: "1",
  };
  expect(readConfig(set)).toMatchObject({
    maxMachines: 4,
    warmMachines: 0,
    diskFloorBytes: 0,
    closeSmtp: true,
  });
});

it("keeps at most eight machines of a kind, or the minimum if that is more; none if the minimum is 0", () => {
  const most = (env: Record<string, string>) => readConfig(env).maxWarmMachines;
  expect(most({})).toBe(8);
  expect(most({ VIV_WARM_MACHINES: "12" })).toBe(12);
  expect(most({ VIV_WARM_MACHINES: "2", VIV_MAX_WARM_MACHINES: "3" })).toBe(3);
  expect(most({ VIV_WARM_MACHINES: "0", VIV_MAX_WARM_MACHINES: "3" })).toBe(0);
  expect(() => readConfig({ VIV_WARM_MACHINES: "2", VIV_MAX_WARM_MACHINES: "1" })).toThrow(
    'VIV_MAX_WARM_MACHINES is "1"; expected at least VIV_WARM_MACHINES, which is 2',
  );
});

it.each([
  { VIV_MAX_MACHINES: "many" },
  { VIV_MAX_MACHINES: "-1" },
  { VIV_WARM_MACHINES: "1.5" },
  { VIV_MAX_WARM_MACHINES: "all" },
  { VIV_DISK_FLOOR_BYTES: "5GiB" },
  { VIV_CLOSE_SMTP: "yes" },
])("refuses %j and says which setting it is", (env) => {
  const [[name, text]] = Object.entries(env) as [[string, string]];
  expect(() => readConfig(env)).toThrow(`${name} is "${text}"; expected `);
});
