import type { CgroupHierarchy } from "@vivarium/kit/cgroup-hierarchy";
import { expect, test } from "vitest";
import { type CgroupFacts, judgeCgroups } from "./cgroups.ts";

const ALL = ["cpuset", "cpu", "io", "memory", "pids"];
const unified = (controllers = ALL, isHostRoot = true): CgroupHierarchy => ({
  ...{ kind: "unified", controllers, isHostRoot },
});

const judge = (facts: Partial<CgroupFacts>) => judgeCgroups({ hierarchy: unified(), passedOn: [], ...facts });

test("a unified hierarchy with all controllers is good, with systemd or without", () => {
  expect(judge({})).toMatchObject({ status: "ok", found: "cpu, memory, pids, io" });
  const [running, none] = ["active", "inactive"].map((state) => judge({ unit: { state } }));
  expect(running).toMatchObject({ status: "ok" });
  expect(running?.found).toMatch(/below vivarium-machines\.service, which runs$/);
  expect(none?.found).toMatch(/which the service starts$/);
});

test("a missing controller is named; without io sessions only lack weights for the disk", () => {
  const lacking = judge({ hierarchy: unified(["cpu", "io"]) });
  expect(lacking).toMatchObject({ status: "warn", found: "without memory, pids" });
  const noDisk = judge({ hierarchy: unified(["cpu", "memory", "pids"]) });
  expect(noDisk.status).toBe("ok");
  expect(noDisk.found).toContain("no io");
});

test.each([
  ["hybrid", "hybrid"],
  ["v1", "version 1 only"],
  ["none", "not mounted"],
] as const)("a hierarchy that is %s is called so, with a remedy", (kind, found) => {
  const finding = judge({ hierarchy: { kind } });
  expect(finding).toMatchObject({ status: "warn", found: expect.stringContaining(found) });
  expect(finding.remedy).toContain("systemd.unified_cgroup_hierarchy=1");
});

test("with systemd and version 1 alone, a restart of the service's unit is said to end its machines", () => {
  const unit = { state: "active" };
  expect(judge({ hierarchy: { kind: "v1" }, unit }).cost).toContain("restart of the service's unit ends");
  expect(judge({ hierarchy: { kind: "hybrid" }, unit }).cost).not.toContain("restart");
});

test("a container's group is no root, unless its controllers are passed on", () => {
  const hierarchy = unified(ALL, false);
  expect(judge({ hierarchy })).toMatchObject({ status: "warn", remedy: "Run the service on the host." });
  expect(judge({ hierarchy, passedOn: ALL })).toMatchObject({ status: "ok" });
});

test("a unit that is masked, with which no machine starts, is a failure", () => {
  expect(judge({ unit: { state: "masked" } })).toMatchObject({
    status: "fail",
    remedy: "systemctl unmask vivarium-machines.service",
  });
});

test("a unit that failed, or that systemd does not answer for, is a warning", () => {
  expect(judge({ unit: { state: "failed" } })).toMatchObject({ status: "warn" });
  const unknown = judge({ unit: { unknown: "no bus" } });
  expect(unknown).toMatchObject({ status: "warn", found: expect.stringContaining("no bus") });
});

test("a node whose machines are refused or without limits is reported, although the host could give them", () => {
  const refused = judge({ node: { cgroup_lack: "no bus", limits_refused: true } });
  expect(refused).toMatchObject({ status: "fail", found: expect.stringContaining("no bus") });
  const without = judge({ node: { cgroup_lack: "read-only", limits_refused: false } });
  expect(without).toMatchObject({ status: "warn", found: expect.stringContaining("read-only") });
  expect(judge({ node: { limits_refused: false } })).toMatchObject({ status: "ok" });
  // The cause of the host says more.
  const hybrid = judge({ hierarchy: { kind: "hybrid" }, node: { cgroup_lack: "hybrid" } });
  expect(hybrid.found).toMatch(/^hybrid: mounted/);
});
