import { isOpen, type Opening } from "@vivarium/kit/ipv4-openings";
import { findRange } from "@vivarium/kit/ipv4-ranges";
import { inNetworkWith } from "@vivarium/kit/test-support/network-with-address";
import { expect, it } from "vitest";
import { readConfig } from "./config.ts";
import { readHostNetwork } from "./host/host-network.ts";
import { GATEWAY_ADDRESS, GUEST_ADDRESS } from "./host/netns.ts";
import { slotOf } from "./host/slots.ts";

it("adds the operator's ranges to those that no guest reaches", async () => {
  expect(readConfig({}).neverRanges).toEqual([]);
  const { neverRanges } = readConfig({ VIV_NEVER_RANGES: "8.8.4.4, 9.9.9.0/24," });
  expect(neverRanges).toEqual(["8.8.4.4/32", "9.9.9.0/24"]);
  const { never } = await readHostNetwork({ resolvers: ["9.9.9.9"], neverRanges });
  const isNever = (address: string) => findRange(never, address) !== undefined;
  expect(["8.8.4.4", "9.9.9.200", "10.1.2.3"].filter(isNever)).toHaveLength(3);
  expect(["198.51.100.7", "203.0.113.7", "255.255.255.255"].filter(isNever)).toHaveLength(3);
  expect(["8.8.4.5", "9.9.8.1"].filter(isNever)).toEqual([]);
});

it("reads what the operator opens of private addresses, and refuses what is to stay closed", () => {
  expect(readConfig({}).privateOpen).toEqual([]);
  const text = "10.1.2.3:443,192.168.0.0/16:8080,100.64.0.0/24:80";
  expect(readConfig({ VIV_PRIVATE_OPEN: text }).privateOpen).toEqual([
    { range: "10.1.2.3/32", port: 443 },
    { range: "192.168.0.0/16", port: 8080 },
    { range: "100.64.0.0/24", port: 80 },
  ]);
  const slot = slotOf(300);
  for (const [closed, why] of [
    [GUEST_ADDRESS, "10.200.0.0/30"],
    [GATEWAY_ADDRESS, "10.200.0.0/30"],
    [slot.hostAddress, "10.220.0.0/16"],
    [slot.machineAddress, "10.220.0.0/16"],
    ["127.0.0.1", "127.0.0.0/8"],
    ["169.254.169.254", "169.254.0.0/16"],
    ["168.63.129.16", "168.63.129.16/32"],
    ["100.100.100.200", "100.100.100.200/32"],
    ["100.64.0.0/10", "100.100.100.200/32"],
    ["10.0.0.0/8", "10.200.0.0/30"],
    ["192.0.2.1", "192.0.2.0/24"],
    ["198.18.0.1", "198.18.0.0/15"],
    ["224.0.0.1", "224.0.0.0/4"],
    ["240.0.0.1", "240.0.0.0/4"],
    ["255.255.255.255", "240.0.0.0/4"],
    ["0.0.0.0/8", "0.0.0.0/8"],
    ["10.9.0.1", "10.9.0.0/16"],
    ["10.8.0.0/13", "10.9.0.0/16"],
  ])
    expect(() => readConfig({ VIV_PRIVATE_OPEN: `${closed}:80`, VIV_NEVER_RANGES: "10.9.0.0/16" })).toThrow(
      `VIV_PRIVATE_OPEN names "${closed}:80", which has addresses of ${why}`,
    );
  for (const port of [53, 853])
    expect(() => readConfig({ VIV_PRIVATE_OPEN: `10.1.2.3:${port}` })).toThrow(
      "the ports 53 and 853 are closed",
    );
});

it("keeps this host's own addresses closed in what the operator opens", async () => {
  const [own, other] = ["10.44.5.6", "10.44.5.7"];
  const module = new URL("host/host-network.ts", import.meta.url).href;
  const code = `import { readHostNetwork } from ${JSON.stringify(module)};
    const open = (range) => readHostNetwork({ privateOpen: [{ range, port: 80 }] });
    const refused = await open("${own}/32").catch((error) => error.message);
    console.log(JSON.stringify([refused, (await open("10.44.5.0/24")).open]));`;
  const [refused, left] = (await inNetworkWith(own, code)) as [string, Opening[]];
  expect(refused).toContain(`VIV_PRIVATE_OPEN names "${own}:80", an address of this host`);
  expect([isOpen(left, own, 80), isOpen(left, other, 80), isOpen(left, other, 81)]).toEqual([
    false,
    true,
    false,
  ]);
});

it("wants an absolute path of the settings for guests", () => {
  expect(readConfig({}).guestSettingsFile).toBe(undefined);
  expect(readConfig({ VIV_GUEST_SETTINGS: "/etc/a.json" }).guestSettingsFile).toBe("/etc/a.json");
  expect(() => readConfig({ VIV_GUEST_SETTINGS: "a.json" })).toThrow('VIV_GUEST_SETTINGS is "a.json"');
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
  { VIV_ACCEL: "KVM" },
  { VIV_CPU_MODEL: "max" },
  { VIV_CPU_MODEL: "host,svm=on" },
  { VIV_CPU_MODEL: "-host" },
])("refuses %j and says which setting it is", (env) => {
  const [[name, text]] = Object.entries(env) as [[string, string]];
  expect(() => readConfig(env)).toThrow(`${name} is "${text}"; expected `);
});

it("reads accelerator and CPU model; unset or empty they are found, and the host's", () => {
  const usual = { accelerator: "auto", cpuModel: "host" };
  expect(readConfig({})).toMatchObject(usual);
  expect(readConfig({ VIV_ACCEL: "", VIV_CPU_MODEL: "" })).toMatchObject(usual);
  for (const cpuModel of ["x86-64-v3", "EPYC-Rome-v4", "Opteron_G1"])
    expect(readConfig({ VIV_ACCEL: "kvm", VIV_CPU_MODEL: cpuModel })).toMatchObject({
      accelerator: "kvm",
      cpuModel,
    });
});
