import { mkdir, readdir, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { countMachines, hasOtherSlots, removeSlots, slotsOf } from "./slot-remains.ts";

inOwnDirectories();

test("slots are those of the data directory and its bakes, not of another with a similar name", async () => {
  const slots = path.join(dir, "slots");
  await mkdir(slots);
  for (const [name, owner] of [
    ["1", "/srv/a"],
    ["2", "/srv/a#bake"],
    ["3", "/srv/ab"],
    [".4", "/srv/a"],
    ["5", "/srv/a#b"],
    ["6", "/srv/a#b#bake"],
  ] as const)
    await writeFile(path.join(slots, name), owner);
  expect((await slotsOf("/srv/a", slots)).toSorted()).toEqual([1, 2]);
  expect((await slotsOf("/srv/a#b", slots)).toSorted()).toEqual([5, 6]);
  expect([await hasOtherSlots("/srv/a", slots), await hasOtherSlots("/srv/none", slots)]).toEqual([
    true,
    true,
  ]);
  expect(await slotsOf("/srv/a", path.join(dir, "none"))).toEqual([]);
});

test("slots of a data directory are those of every path to it, and a slot without an owner belongs to no directory", async () => {
  const slots = path.join(dir, "slots");
  await mkdir(slots);
  await symlink(dir, path.join(dir, "link"));
  await writeFile(path.join(slots, "1"), path.join(dir, "link"));
  await writeFile(path.join(slots, "2"), `${path.join(dir, "link")}#bake`);
  await writeFile(path.join(slots, "3"), "");
  expect((await slotsOf(dir, slots)).toSorted()).toEqual([1, 2]);
  expect(await slotsOf(process.cwd(), slots)).toEqual([]);
});

test("machines of sessions are counted by the journal, while their process lives", async () => {
  const self = identify(process.pid);
  for (const [id, entry] of [
    ["a-1", { state: "running", process: self }],
    ["b-1", { state: "held", process: self }],
    ["c-1", { state: "starting", process: self }],
    ["d-1", { state: "running", process: { ...self, bootId: "of-another-boot" } }],
    ["e-1", "not whole"],
  ] as const) {
    const folder = path.join(dir, "pool/m", id);
    await mkdir(folder, { recursive: true });
    await writeFile(
      path.join(folder, "machine.json"),
      typeof entry === "string" ? entry : JSON.stringify(entry),
    );
  }
  expect(await countMachines(dir)).toBe(2);
  expect(await countMachines(path.join(dir, "none"))).toBe(0);
});

/** Places with what two slots have that no machine uses; `ip` knows neither. */
async function leaveSlots() {
  const at = (name: string) => path.join(dir, name);
  for (const name of ["slots", "links", "namespaces", "groups/slot-4091/below", "groups/slot-4092"])
    await mkdir(at(name), { recursive: true });
  for (const name of ["slots/4091", "slots/4092"]) await writeFile(at(name), dir);
  return {
    slotsDir: at("slots"),
    linksDir: at("links"),
    namespacesDir: at("namespaces"),
    groupParents: [at("groups"), at("none")],
  };
}

test("of a slot everything goes, also its cgroup below that of all machines", async () => {
  const places = await leaveSlots();
  await removeSlots([4091, 4092], places);
  expect([await readdir(places.slotsDir), await readdir(path.join(dir, "groups"))]).toEqual([[], []]);
});

test("a part of a slot that stays is named, the slot stays taken, and the rest goes all the same", async () => {
  const places = await leaveSlots();
  await writeFile(path.join(places.linksDir, "viv4091"), "");
  await writeFile(path.join(places.namespacesDir, "viv-4091"), "");
  await expect(removeSlots([4091, 4092], places)).rejects.toThrow(
    /^slot 4091 failed: its link failed: ip link del viv4091: .*its namespace failed: ip netns del viv-4091: /,
  );
  expect([await readdir(places.slotsDir), await readdir(path.join(dir, "groups"))]).toEqual([["4091"], []]);
});
