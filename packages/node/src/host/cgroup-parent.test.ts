/** On folders that look like a hierarchy, with systemd's answers given. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { CgroupHierarchy } from "@vivarium/kit/cgroup-hierarchy";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import {
  type CgroupHost,
  placeOn,
  possibleParents,
  prepareParent,
  releaseParent,
  THIS_HOST,
} from "./cgroup-parent.ts";

const ALL = "cpuset cpu io memory hugetlb pids";
const UNIT = "system.slice/vivarium-machines.service";
let root: string;

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), "cgroup-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  makeGroup(".", ALL);
});

function makeGroup(name: string, controllers: string, procs = ""): void {
  mkdirSync(path.join(root, name), { recursive: true });
  writeFileSync(path.join(root, name, "cgroup.controllers"), `${controllers}\n`);
  writeFileSync(path.join(root, name, "cgroup.subtree_control"), "\n");
  writeFileSync(path.join(root, name, "cgroup.procs"), procs);
}

const read = (file: string) => readFileSync(path.join(root, file), "utf8");
const hostWith = (change: Partial<CgroupHost>): CgroupHost => ({ ...THIS_HOST, root, ...change });
const without = () => hostWith({ systemdDir: path.join(root, "nowhere") });

/** A host with systemd, whose unit is in these states one after the other, the last one for good. */
function withSystemd(states: string[], fragment = "", failure = "") {
  const commands: string[][] = [];
  const host = hostWith({
    systemdDir: root,
    run: async (command, args) => {
      if (command === "systemctl" && args[0] === "show") {
        const state = states.length > 1 ? states.shift() : states[0];
        const group = state === "active" ? `/${UNIT}` : "";
        const stdout = `ActiveState=${state}\nControlGroup=${group}\nFragmentPath=${fragment}\n`;
        return { code: 0, stdout, stderr: "" };
      }
      commands.push([command, ...args]);
      return { code: failure ? 1 : 0, stdout: "", stderr: failure };
    },
  });
  return { host, commands };
}

test("the place of machines follows from the hierarchy and the init process", () => {
  const unified: CgroupHierarchy = { kind: "unified", controllers: [], isHostRoot: true };
  const hybrid = { lack: expect.stringContaining("hybrid") };
  expect(placeOn(unified, true)).toEqual({ kind: "unit", below: "." });
  expect(placeOn(unified, false)).toEqual({ kind: "own" });
  expect(placeOn({ kind: "hybrid" }, true)).toEqual({ kind: "unit", below: "unified", ...hybrid });
  expect(placeOn({ kind: "hybrid" }, false)).toEqual(hybrid);
  expect(placeOn({ kind: "v1" }, false)).toMatchObject({ lack: expect.stringContaining("no cgroup v2") });
});

test("without systemd the root and our own group pass on the controllers that limits need", async () => {
  makeGroup("vivarium", ALL);
  const controllers = ["cpu", "memory", "pids", "io"];
  expect(await prepareParent(without())).toEqual({ group: path.join(root, "vivarium"), controllers });
  for (const file of ["cgroup.subtree_control", "vivarium/cgroup.subtree_control"])
    expect(read(file)).toBe("+cpu +memory +pids +io");
});

test("controllers that are passed on already are not written again", async () => {
  makeGroup("vivarium", ALL);
  writeFileSync(path.join(root, "cgroup.subtree_control"), "cpu memory pids io\n");
  await prepareParent(without());
  expect(read("cgroup.subtree_control")).toBe("cpu memory pids io\n");
});

test("a controller that the host lacks is named; the others are used", async () => {
  makeGroup(".", "cpu pids");
  makeGroup("vivarium", "cpu pids");
  const parent = await prepareParent(without());
  expect(parent).toMatchObject({ controllers: ["cpu", "pids"], lack: expect.stringContaining("memory") });
});

test("a root that cannot pass on controllers is a lack that says why, and no error", async () => {
  rmSync(path.join(root, "cgroup.subtree_control"));
  mkdirSync(path.join(root, "cgroup.subtree_control/in-the-way"), { recursive: true });
  writeFileSync(path.join(root, "cgroup.type"), "domain\n");
  const parent = await prepareParent(without());
  expect(parent.group).toBeUndefined();
  expect(parent.lack).toContain("not the host's root");
});

test("with systemd the unit's group is used: its process moves below it, and nothing above it is written", async () => {
  makeGroup(UNIT, ALL, "41\n");
  const { host, commands } = withSystemd(["active"]);
  const parent = await prepareParent(host);
  expect(parent).toEqual({ group: path.join(root, UNIT), controllers: ["cpu", "memory", "pids", "io"] });
  expect(read(`${UNIT}/holder/cgroup.procs`)).toBe("41");
  expect(read(`${UNIT}/cgroup.subtree_control`)).toBe("+cpu +memory +pids +io");
  expect(read("cgroup.subtree_control")).toBe("\n");
  expect(existsSync(path.join(root, "vivarium"))).toBe(false);
  expect(commands).toEqual([]);
});

test("a unit that does not run is made, delegated; an installed one is started", async () => {
  makeGroup(UNIT, ALL);
  const made = withSystemd(["inactive", "activating", "active"]);
  expect(await prepareParent(made.host)).not.toHaveProperty("lack");
  expect(made.commands).toHaveLength(1);
  expect(made.commands[0]).toEqual(
    expect.arrayContaining(["systemd-run", "--property=Delegate=cpu memory pids io"]),
  );
  const installed = withSystemd(["inactive", "active"], "/etc/systemd/system/vivarium-machines.service");
  await prepareParent(installed.host);
  expect(installed.commands).toEqual([["systemctl", "start", "vivarium-machines.service"]]);
});

test("a start that fails because another service was quicker is no failure", async () => {
  makeGroup(UNIT, ALL);
  const { host } = withSystemd(["inactive", "active"], "", "Unit was already loaded");
  expect(await prepareParent(host)).toMatchObject({ group: path.join(root, UNIT) });
});

test("a unit that cannot be started is a lack, with systemd's words", async () => {
  const { host } = withSystemd(["inactive"], "", "Failed to connect to bus");
  expect(await prepareParent(host)).toEqual({
    lack: expect.stringContaining("Failed to connect to bus"),
    isFault: true,
  });
});

test("a unit that was made is stopped once nothing needs it, and an installed one runs on", async () => {
  makeGroup(UNIT, ALL);
  const made = withSystemd(["active"], "/run/systemd/transient/vivarium-machines.service");
  await releaseParent(made.host, await prepareParent(made.host));
  expect(made.commands).toEqual([["systemctl", "stop", "vivarium-machines.service"]]);
  const installed = withSystemd(["active"], "/etc/systemd/system/vivarium-machines.service");
  await releaseParent(installed.host, await prepareParent(installed.host));
  expect(installed.commands).toEqual([]);
});

test("our own group is removed, unless a machine has one below it", async () => {
  const host = without();
  const group = path.join(root, "vivarium");
  mkdirSync(path.join(group, "slot-1"), { recursive: true });
  await releaseParent(host, { group, controllers: [] });
  expect(existsSync(group)).toBe(true);
  rmSync(path.join(group, "slot-1"), { recursive: true });
  await releaseParent(host, { group, controllers: [] });
  expect(existsSync(group)).toBe(false);
  await releaseParent(host, { lack: "no cgroup v2" });
});

test("on a hybrid hierarchy machines have a group that outlives the service's, and no limits", async () => {
  rmSync(path.join(root, "cgroup.controllers"));
  makeGroup("unified", "");
  makeGroup(`unified/${UNIT}`, "", "41\n");
  const { host } = withSystemd(["active"]);
  expect(await prepareParent(host)).toEqual({
    group: path.join(root, "unified", UNIT),
    controllers: [],
    lack: expect.stringContaining("hybrid"),
  });
  expect(read(`unified/${UNIT}/holder/cgroup.procs`)).toBe("41");
  const failing = withSystemd(["inactive"], "", "no bus").host;
  expect(await prepareParent(failing)).toMatchObject({
    lack: expect.stringMatching(/hybrid.*no bus/),
    isFault: false,
  });
});

test("groups of machines are looked for at every place that a version or a start gave them", () => {
  const installed = possibleParents(without(), { group: path.join(root, "other.slice/x"), controllers: [] });
  const known = ["vivarium", UNIT, `unified/${UNIT}`];
  expect(installed).toEqual(["other.slice/x", ...known].map((name) => path.join(root, name)));
  expect(possibleParents(without(), { lack: "none" })).toHaveLength(3);
});
