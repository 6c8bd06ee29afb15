import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { PAUSE_ALL_LIMIT_MS } from "@vivarium/contract/supervision";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { ROOT } from "../supervisor/repository.ts";
import { machinesUnit, readUnit, serviceUnit } from "./unit-text.ts";

inOwnDirectories();

const facts = {
  name: "vivarium",
  copy: "/opt/vivarium",
  dataDir: "/var/lib/vivarium",
  settingsFile: "/etc/vivarium/vivarium.env",
  journalFile: "/opt/update.json",
  systemd: 257,
};
const lines = (text: string) => text.split("\n");
const valuesOf = (text: string, name: string) =>
  lines(text)
    .filter((line) => line.startsWith(`${name}=`))
    .map((line) => line.slice(name.length + 1));

test("the unit runs viv up in the foreground, with its log in the journal and its settings from the file", () => {
  const text = serviceUnit(facts);
  const viv = "/opt/vivarium/node_modules/.bin/node /opt/vivarium/packages/cli/src/main.ts";
  expect(valuesOf(text, "ExecStart")).toEqual([`${viv} up --data-dir /var/lib/vivarium --log stdout`]);
  expect(valuesOf(text, "ExecStartPost")).toEqual([`${viv} ready --data-dir /var/lib/vivarium`]);
  expect(valuesOf(text, "EnvironmentFile")).toEqual(["-/etc/vivarium/vivarium.env"]);
  expect(valuesOf(text, "WantedBy")).toEqual(["multi-user.target"]);
});

test("its start needs the data that is in use, then continues an update, then renews what fits this host no more", () => {
  expect(valuesOf(serviceUnit(facts), "ExecStartPre")).toEqual([
    // Without a dash: a failure ends the start.
    "+/opt/vivarium/scripts/require-data --keep /var/lib/vivarium",
    "+-/opt/vivarium/scripts/continue-update /opt/update.json vivarium",
    "+-/opt/vivarium/scripts/setup/when-needed /var/lib/vivarium --baseline-only",
  ]);
});

test("it waits for the file systems of its copy, its data, its pool and of what its settings name", () => {
  const text = serviceUnit({ ...facts, otherPlaces: ["/srv/o b"] });
  expect(valuesOf(text, "RequiresMountsFor")).toEqual([
    '/opt/vivarium /var/lib/vivarium /var/lib/vivarium/pool "/srv/o b"',
  ]);
});

test("no restart of packages ends the machines: by hand their unit is not stopped, but for the uninstall", () => {
  expect(valuesOf(machinesUnit(), "RefuseManualStop")).toEqual(["yes"]);
  expect(valuesOf(machinesUnit({ mayStop: true }), "RefuseManualStop")).toEqual(["no"]);
  // The service may be: its machines run on.
  expect(serviceUnit(facts)).not.toContain("RefuseManualStop");
});

test("it leaves bubblewrap the call openat2, which RestrictSUIDSGID would take", () => {
  expect(valuesOf(serviceUnit(facts), "NoNewPrivileges")).toEqual(["yes"]);
  expect(valuesOf(serviceUnit(facts), "RestrictSUIDSGID")).toEqual([]);
});

test("at shutdown it is stopped before its machines, and has the time to pause all sessions", () => {
  const text = serviceUnit(facts);
  expect(valuesOf(text, "After")[0]?.split(" ")).toContain(MACHINES_UNIT);
  expect(valuesOf(text, "KillMode")).toEqual(["mixed"]);
  expect(Number(valuesOf(text, "TimeoutStopSec")[0])).toBeGreaterThan(PAUSE_ALL_LIMIT_MS / 1000 + 60);
  // systemd ends a reboot by force after half an hour.
  expect(Number(valuesOf(text, "TimeoutStopSec")[0])).toBeLessThan(30 * 60);
});

test("a systemd that cannot wait longer after each failure is not asked to", () => {
  expect(serviceUnit({ ...facts, systemd: 252 })).not.toContain("RestartSteps");
  expect(serviceUnit({ ...facts, systemd: 254 })).toContain("RestartSteps");
});

test("no option gives it a mount namespace of its own, in which mounts of machines would end with it", () => {
  const own =
    /^(Protect(System|Home|KernelTunables|KernelModules|KernelLogs|ControlGroups|Proc)|Private(Tmp|Devices|Mounts|IPC)|ProcSubset|(Read(Write|Only)|Inaccessible|Exec|NoExec)Paths|Bind\w*Paths|TemporaryFileSystem|Root\w+|MountFlags|MountAPIVFS)=/m;
  expect(serviceUnit(facts)).not.toMatch(own);
  expect("ProtectHome=yes").toMatch(own);
});

test("paths with blanks, quotes, dollars and percent signs are read back as they are", () => {
  const dataDir = '/srv/a "b" $HOME 100%';
  const text = serviceUnit({ ...facts, dataDir });
  expect(valuesOf(text, "ExecStart")[0]).toContain('"/srv/a \\"b\\" $$HOME 100%%"');
  expect(readUnit(text)).toEqual({ dataDir, copy: facts.copy });
});

test("our units are known by their mark, and those of others are not", () => {
  expect(readUnit(serviceUnit(facts))).toEqual({ dataDir: "/var/lib/vivarium", copy: "/opt/vivarium" });
  expect(readUnit(machinesUnit())).toEqual({});
  expect(readUnit("[Service]\nExecStart=/bin/true\n")).toBeUndefined();
});

test("the machines have a group of their own that outlives the service", () => {
  expect(valuesOf(machinesUnit(), "Delegate")).toEqual(["cpu memory pids io"]);
  expect(machinesUnit()).not.toContain("BindsTo");
  expect(serviceUnit(facts)).not.toMatch(/^(Requires|BindsTo|PartOf)=/m);
});

test("the launcher reads the data directory of a unit, whatever its path, and of no unit of somebody else", () => {
  const script = path.join(ROOT, "scripts/unit-data-dir");
  const read = (name = "vivarium") => execFileSync(script, [name, dir], { encoding: "utf8" }).trimEnd();
  const write = (text: string) => writeFileSync(path.join(dir, "vivarium.service"), text);
  expect(read()).toBe("");
  for (const dataDir of ["/var/lib/vivarium", "/srv/a b'c\"d%e$f\\g", '/srv/\\"x\\\\']) {
    write(serviceUnit({ ...facts, dataDir }));
    expect(read()).toBe(dataDir);
  }
  expect(read("../vivarium")).toBe("");
  write(`[Service]\n[X-Vivarium]\nDataDir="/foreign"\n`);
  expect(read()).toBe("");
  write(machinesUnit());
  expect(read()).toBe("");
  write(serviceUnit({ ...facts, dataDir: "/srv/line\nbreak" }));
  expect(spawnSync(script, ["vivarium", dir]).status).toBe(1);
});
