/** Machines whose limits cannot be set, on folders that look like a hierarchy, with systemd's answers given. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { openCgroups } from "./cgroup.ts";
import { type CgroupHost, THIS_HOST } from "./cgroup-parent.ts";
import { slotOf } from "./slots.ts";

const SHAPE = { accelerator: "kvm", vcpus: 1, memMb: 64 } as const;
const SLOT = slotOf(7);
let root: string;

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), "cgroup-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  makeGroup(".");
  makeGroup("unit");
});

function makeGroup(name: string): void {
  mkdirSync(path.join(root, name), { recursive: true });
  for (const [file, text] of [
    ["cgroup.controllers", "cpu io memory pids\n"],
    ["cgroup.subtree_control", "\n"],
    ["cgroup.procs", ""],
  ] as const)
    writeFileSync(path.join(root, name, file), text);
}

interface Systemd {
  group?: string | undefined;
  error?: string | undefined;
}

/** A systemd that answers with the group of its unit, or with an error. */
function hostWith(systemd: Systemd): CgroupHost {
  const run: CgroupHost["run"] = async () => {
    if (systemd.error !== undefined) return { code: 1, stdout: "", stderr: systemd.error };
    const stdout = `ActiveState=active\nControlGroup=/${systemd.group}\nFragmentPath=\n`;
    return { code: 0, stdout, stderr: "" };
  };
  return { ...THIS_HOST, root, systemdDir: root, run };
}

test("a systemd that does not answer costs no machine its limits: it is refused, and the next one tries again", async () => {
  const systemd: Systemd = { error: "no bus" };
  const reasons: (string | undefined)[] = [];
  const cgroups = await openCgroups(hostWith(systemd), (reason) => reasons.push(reason));
  expect(cgroups.refusal).toContain("no bus");
  await expect(cgroups.make(SLOT, SHAPE)).rejects.toMatchObject({ code: "no_capacity" });
  Object.assign(systemd, { error: undefined, group: "unit" });
  expect(await cgroups.make(SLOT, SHAPE)).toBe(path.join(root, "unit/slot-7"));
  expect(readFileSync(path.join(root, "unit/slot-7/pids.max"), "utf8")).toBe("81");
  expect([cgroups.refusal, cgroups.lack, reasons]).toEqual([undefined, undefined, [undefined]]);
});

test("after one failure, later machines get their limits again", async () => {
  const systemd: Systemd = { group: "unit" };
  const reasons: (string | undefined)[] = [];
  const cgroups = await openCgroups(hostWith(systemd), (reason) => reasons.push(reason));
  rmSync(path.join(root, "unit"), { recursive: true });
  systemd.error = "no bus";
  await expect(cgroups.make(SLOT, SHAPE)).rejects.toThrow("cannot set the limits");
  await expect(cgroups.make(SLOT, SHAPE)).rejects.toThrow("cannot set the limits");
  expect(cgroups.lack).toContain("no bus");
  makeGroup("unit");
  systemd.error = undefined;
  expect(existsSync((await cgroups.make(SLOT, SHAPE)) ?? "")).toBe(true);
  expect(reasons).toEqual([expect.stringContaining("no bus"), undefined]);
});

test("a group in which no machine's can be made any more is prepared anew", async () => {
  const systemd = { group: "unit" };
  const cgroups = await openCgroups(hostWith(systemd));
  // In the group's place is something in which none can be made.
  rmSync(path.join(root, "unit"), { recursive: true });
  writeFileSync(path.join(root, "unit"), "");
  makeGroup("other");
  systemd.group = "other";
  expect(await cgroups.make(SLOT, SHAPE)).toBe(path.join(root, "other/slot-7"));
});

test("machines that start at the same time ask systemd once", async () => {
  let asked = 0;
  const host = hostWith({ error: "no bus" });
  const run: CgroupHost["run"] = async (...args) => {
    asked++;
    return await host.run(...args);
  };
  const cgroups = await openCgroups({ ...host, run });
  asked = 0;
  await Promise.allSettled([1, 2, 3, 4].map((number) => cgroups.make(slotOf(number), SHAPE)));
  expect(asked).toBe(1);
});

test("a host without systemd that gives no controllers runs machines without limits, and says so", async () => {
  const host = { ...THIS_HOST, root, systemdDir: "/nowhere" };
  rmSync(path.join(root, "cgroup.subtree_control"));
  mkdirSync(path.join(root, "cgroup.subtree_control/in-the-way"), { recursive: true });
  const cgroups = await openCgroups(host);
  expect(await cgroups.make(SLOT, SHAPE)).toBeUndefined();
  expect([cgroups.refusal, cgroups.lack]).toEqual([undefined, expect.stringContaining("is it writable?")]);
  rmSync(path.join(root, "cgroup.subtree_control"), { recursive: true });
  makeGroup(".");
  makeGroup("vivarium");
  expect(await cgroups.make(SLOT, SHAPE)).toBe(path.join(root, "vivarium/slot-7"));
  expect(cgroups.lack).toBeUndefined();
});
