/**
 * Finds or makes the group that holds the machines' cgroups. Where systemd owns the hierarchy, it is that of a unit of
 * its own, which is delegated to us: nothing above it is changed, and machines outlive a restart of the service's own
 * unit and the end of a login session. Elsewhere it is a group below the root.
 */
import { existsSync } from "node:fs";
import { mkdir, readFile, rmdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT, MACHINES_UNIT_PROPERTIES } from "@vivarium/contract/node";
import {
  CGROUP_ROOT,
  type CgroupHierarchy,
  readCgroupHierarchy,
  readWords,
} from "@vivarium/kit/cgroup-hierarchy";
import { sleep } from "@vivarium/kit/clock";
import { runHostCommand } from "@vivarium/kit/host-command";
import { messageOf } from "@vivarium/kit/unknown-error";
import { NEEDED, USED } from "./cgroup-limits.ts";

/** The parts of the host that decide; tests have others. */
export interface CgroupHost {
  root: string;
  /** Exists while systemd is the init process. */
  systemdDir: string;
  /** How long the processes of a group may take to end: those of a large machine first give back its memory. */
  endLimitMs: number;
  run: typeof runHostCommand;
}

export const THIS_HOST: CgroupHost = {
  root: CGROUP_ROOT,
  systemdDir: "/run/systemd/system",
  endLimitMs: 10_000,
  run: runHostCommand,
};

/** Name of our group below the root, on hosts without systemd. */
export const OWN_GROUP = "vivarium";
/** On a hybrid hierarchy cgroup v2 is mounted here below the root: without controllers, for systemd to know its units' processes. */
const BESIDE_V1 = "unified";
/** Group of the unit's own process: a group that passes controllers on may have no process itself. */
const HOLDER = "holder";

const START_LIMIT_MS = 10_000;
const PAUSE_MS = 50;
const ATTEMPTS = 20;

/** The command that makes the unit, where none is installed. Its process only keeps the unit active. */
const MAKE_UNIT = [
  ...["--quiet", "--collect", `--unit=${MACHINES_UNIT}`, "--description=Machines of Vivarium"],
  "--service-type=exec",
  ...Object.entries(MACHINES_UNIT_PROPERTIES).map(([name, value]) => `--property=${name}=${value}`),
  ...["sleep", "infinity"],
];

/**
 * `lack`: the limits that machines are without, and why. `isFault`: the host has what they need, and they could not be set up
 * now; without it the host has none to give.
 */
export type Parent =
  | { group: string; controllers: string[]; lack?: string }
  | { group?: undefined; lack: string; isFault?: boolean };

export async function prepareParent(host: CgroupHost): Promise<Parent> {
  const place = placeOn(readCgroupHierarchy(host.root), existsSync(host.systemdDir));
  if (!("kind" in place)) return place;
  try {
    const { group, controllers } =
      place.kind === "own" ? await prepareOwn(host) : await prepareUnit(host, place.below);
    if (place.lack !== undefined) return { group, controllers, lack: place.lack };
    const missing = NEEDED.filter((name) => !controllers.includes(name));
    if (missing.length === 0) return { group, controllers };
    return { group, controllers, lack: `the host has no cgroup controller ${missing.join(", ")}` };
  } catch (error) {
    // Without systemd, the root may be that of a container, which nobody gave a group of its own.
    const isFault = place.kind === "unit" && place.lack === undefined;
    return { lack: [place.lack, messageOf(error)].filter(Boolean).join("; "), isFault };
  }
}

/** Stops the unit if it is a transient one; an installed one stays. Our own group is removed once it is empty. */
export async function releaseParent(host: CgroupHost, { group }: Parent): Promise<void> {
  if (group === undefined) return;
  if (group === path.join(host.root, OWN_GROUP)) return await rmdir(group).catch(() => {});
  if (isInstalled(await showUnit(host))) return;
  const { code, stderr } = await host.run("systemctl", ["stop", MACHINES_UNIT]);
  if (code !== 0)
    throw new Error(`systemctl stop ${MACHINES_UNIT} failed: ${stderr.trim() || `exit code ${code}`}`);
}

/** `below`: where the tree that has the unit's group begins, below the root. */
type Place = { kind: "unit"; below: string; lack?: string } | { kind: "own"; lack?: string };

/**
 * Where the group belongs on such a host. A hybrid one has no limits to give, but systemd, with the service's unit, ends every
 * process in that unit's group: machines have another one there too.
 */
export function placeOn(hierarchy: CgroupHierarchy, hasSystemd: boolean): Place | { lack: string } {
  if (hierarchy.kind === "unified") return hasSystemd ? { kind: "unit", below: "." } : { kind: "own" };
  if (hierarchy.kind !== "hybrid") return { lack: `no cgroup v2 at ${CGROUP_ROOT}` };
  const lack = "cgroup v2 is mounted beside v1, which has the controllers (a hybrid hierarchy)";
  return hasSystemd ? { kind: "unit", below: BESIDE_V1, lack } : { lack };
}

/** The groups that may hold those of machines, also of machines that an earlier version or another start made. */
export function possibleParents({ root }: CgroupHost, parent: Parent): string[] {
  const ofUnit = path.join("system.slice", MACHINES_UNIT);
  const known = [OWN_GROUP, ofUnit, path.join(BESIDE_V1, ofUnit)].map((name) => path.join(root, name));
  return [...new Set([...(parent.group === undefined ? [] : [parent.group]), ...known])];
}

interface Prepared {
  group: string;
  /** Controllers that groups below this one have. */
  controllers: string[];
}

async function prepareOwn({ root }: CgroupHost): Promise<Prepared> {
  const group = path.join(root, OWN_GROUP);
  await mkdir(group, { recursive: true });
  await passOn(root).catch((cause) => {
    const why = existsSync(path.join(root, "cgroup.type"))
      ? "it is not the host's root, and a group with processes can pass on none; run the service on the host"
      : "is it writable?";
    throw new Error(`${root} passes no controllers on (${cause.message}): ${why}`, { cause });
  });
  return { group, controllers: await passOn(group) };
}

async function prepareUnit(host: CgroupHost, below: string): Promise<Prepared> {
  const { controlGroup } = await startUnit(host);
  const group = path.join(host.root, below, controlGroup);
  if (controlGroup === "" || !existsSync(group))
    throw new Error(`${MACHINES_UNIT} has no cgroup at ${group}`);
  for (let attempt = 1; ; attempt++) {
    await moveAway(group);
    try {
      return { group, controllers: await passOn(group) };
    } catch (error) {
      // systemd may just be moving a process into the group.
      if ((error as NodeJS.ErrnoException).code !== "EBUSY" || attempt === ATTEMPTS) throw error;
      await sleep(PAUSE_MS);
    }
  }
}

interface Unit {
  activeState: string;
  controlGroup: string;
  fragmentPath: string;
}

/** Starts the unit unless it runs. Another service may do the same at the same time: then one of the starts fails. */
async function startUnit(host: CgroupHost): Promise<Unit> {
  const before = await showUnit(host);
  if (before.activeState === "active") return before;
  const start = isInstalled(before) ? ["systemctl", "start", MACHINES_UNIT] : ["systemd-run", ...MAKE_UNIT];
  const [command = "", ...args] = start;
  const { stderr } = await host.run(command, args);
  const deadline = performance.now() + START_LIMIT_MS;
  for (;;) {
    const unit = await showUnit(host);
    if (unit.activeState === "active") return unit;
    if (unit.activeState !== "activating" || performance.now() > deadline)
      throw new Error(`${MACHINES_UNIT} could not be started: ${stderr.trim() || unit.activeState}`);
    await sleep(PAUSE_MS);
  }
}

async function showUnit({ run }: CgroupHost): Promise<Unit> {
  const properties = ["ActiveState", "ControlGroup", "FragmentPath"];
  const args = ["show", ...properties.map((name) => `--property=${name}`), MACHINES_UNIT];
  const { code, stdout, stderr } = await run("systemctl", args);
  if (code !== 0)
    throw new Error(`systemctl show ${MACHINES_UNIT} failed: ${stderr.trim() || `exit code ${code}`}`);
  const valueFor = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(stdout)?.[1] ?? "";
  return {
    activeState: valueFor("ActiveState"),
    controlGroup: valueFor("ControlGroup"),
    fragmentPath: valueFor("FragmentPath"),
  };
}

const isInstalled = ({ fragmentPath }: Unit) =>
  fragmentPath !== "" && !fragmentPath.startsWith("/run/systemd/transient/");

/** Moves the group's own processes into a group below it. */
async function moveAway(group: string): Promise<void> {
  const pids = (await readFile(path.join(group, "cgroup.procs"), "utf8")).split("\n").filter(Boolean);
  if (pids.length === 0) return;
  const holder = path.join(group, HOLDER);
  await mkdir(holder, { recursive: true });
  for (const pid of pids) {
    await writeFile(path.join(holder, "cgroup.procs"), pid).catch((error: NodeJS.ErrnoException) => {
      // The process has ended meanwhile.
      if (error.code !== "ESRCH") throw error;
    });
  }
}

/** Lets groups below this one use those controllers that limits are set with. Returns the ones that this group has. */
async function passOn(group: string): Promise<string[]> {
  const present = readWords(path.join(group, "cgroup.controllers")) ?? [];
  const controllers = USED.filter((name) => present.includes(name));
  const file = path.join(group, "cgroup.subtree_control");
  const enabled = readWords(file) ?? [];
  const others = controllers.filter((name) => !enabled.includes(name));
  if (others.length > 0) await writeFile(file, others.map((name) => `+${name}`).join(" "));
  return controllers;
}
