/** On the host's own cgroup v2 file system. */
import { existsSync, mkdirSync, rmdirSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { makeTestGroup, pidsIn, startIn } from "../../test-support/test-group.ts";
import { openCgroups } from "./cgroup.ts";
import { THIS_HOST } from "./cgroup-parent.ts";
import { slotOf } from "./slots.ts";

const SHAPE = { accelerator: "kvm", vcpus: 1, memMb: 64 } as const;
const SLOT = slotOf(7);

/** Groups of machines below a group of this test, as if that were the host's root. */
async function cgroupsHere() {
  const root = makeTestGroup();
  const cgroups = await openCgroups({ ...THIS_HOST, root, systemdDir: "/nowhere" });
  const make = async () => (await cgroups.make(SLOT, SHAPE)) ?? "";
  return { root, cgroups, make };
}

test("all that a machine's command starts is in its group, and gone with it", async () => {
  const { root, cgroups, make } = await cgroupsHere();
  const group = await make();
  expect(group).toBe(path.join(root, "vivarium/slot-7"));
  const child = await startIn(group, "sleep 600 & sh -c 'sleep 600; true' &");
  expect(pidsIn(group)).toContain(child.pid);
  await expect.poll(() => pidsIn(group).length).toBe(4);
  await cgroups.remove(SLOT);
  expect(existsSync(group)).toBe(false);
});

test("a process that an earlier machine of the slot left is not in the next one's group", async () => {
  const { make } = await cgroupsHere();
  await startIn(await make(), "sleep 600 &");
  const group = await make();
  expect(pidsIn(group)).toEqual([]);
});

test("a machine that was made below another parent is found by its slot", async () => {
  const { root, cgroups } = await cgroupsHere();
  const group = path.join(root, "system.slice/vivarium-machines.service/slot-7");
  mkdirSync(group, { recursive: true });
  await startIn(group, "sleep 600 &");
  await cgroups.remove(SLOT);
  expect(existsSync(group)).toBe(false);
});

test("a parent that was removed meanwhile, as by a stop of its unit, is made again", async () => {
  const { root, make, cgroups } = await cgroupsHere();
  await make();
  await cgroups.remove(SLOT);
  rmdirSync(path.join(root, "vivarium"));
  expect(existsSync(await make())).toBe(true);
});

test("on a host without cgroup v2 a machine has no group, and its removal does nothing", async () => {
  const cgroups = await openCgroups({ ...THIS_HOST, root: "/nowhere" });
  expect(cgroups.lack).toContain("no cgroup v2");
  expect(await cgroups.make(SLOT, SHAPE)).toBeUndefined();
  await cgroups.remove(SLOT);
});
