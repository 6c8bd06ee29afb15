/** Checks whether machines get cgroups with limits. */
import { existsSync } from "node:fs";
import path from "node:path";
import { MACHINES_UNIT, type NodeInfo } from "@vivarium/contract/node";
import {
  CGROUP_ROOT,
  type CgroupHierarchy,
  readCgroupHierarchy,
  readWords,
} from "@vivarium/kit/cgroup-hierarchy";
import { runHostCommand } from "@vivarium/kit/host-command";
import { askNode } from "../service/ask-node.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

const NAME = "cgroup v2";
const NEEDED = ["cpu", "memory", "pids"];
const DISK = "io";
const COST = "a session is bounded by process limits alone: neighbours can slow each other down";
const ENDED = `${COST}; a stop or restart of the service's unit ends every machine`;
const REFUSED = "no machine starts, since its limits cannot be set";
const RETRIED = `systemctl status ${MACHINES_UNIT} may say more. Each start of a machine tries again.`;
const UNIFY =
  "Boot with systemd.unified_cgroup_hierarchy=1; without systemd, mount cgroup2 alone at /sys/fs/cgroup.";

export interface CgroupFacts {
  hierarchy: CgroupHierarchy;
  /** Controllers that the root passes on to groups below it. */
  passedOn: string[];
  /** The unit of machines: its state, or why that is unknown. Absent on a host without systemd. */
  unit?: { state: string } | { unknown: string };
  /** The word of the node that runs about its machines. */
  node?: Pick<NodeInfo, "cgroup_lack" | "limits_refused"> | undefined;
}

export async function checkCgroups(nodeSocket: string): Promise<Finding> {
  const hasSystemd = existsSync("/run/systemd/system");
  return judgeCgroups({
    hierarchy: readCgroupHierarchy(),
    passedOn: readWords(path.join(CGROUP_ROOT, "cgroup.subtree_control")) ?? [],
    ...(hasSystemd && { unit: await readUnit() }),
    node: await askNode(nodeSocket),
  });
}

/** `masked` is a state here: systemd calls such a unit inactive, as one that may be started. */
async function readUnit(): Promise<{ state: string } | { unknown: string }> {
  const args = ["show", "--property=LoadState,ActiveState", MACHINES_UNIT];
  const { code, stdout, stderr } = await runHostCommand("systemctl", args);
  if (code !== 0) return { unknown: stderr.trim() || `exit code ${code}` };
  const valueFor = (name: string) => new RegExp(`^${name}=(.*)$`, "m").exec(stdout)?.[1] ?? "";
  return { state: valueFor("LoadState") === "masked" ? "masked" : valueFor("ActiveState") };
}

/** The node's word comes last: what its machines have can differ from what the host could give them. */
export function judgeCgroups({ node, ...host }: CgroupFacts): Finding {
  const { cgroup_lack: lack, limits_refused: isRefused } = node ?? {};
  if (lack !== undefined && isRefused)
    return fail(NAME, `the limits of machines cannot be set: ${lack}`, REFUSED, RETRIED);
  const finding = judgeHost(host);
  if (lack === undefined || finding.status !== "ok") return finding;
  return warn(NAME, `the service's machines are without limits: ${lack}`, COST, RETRIED);
}

function judgeHost({ hierarchy, passedOn, unit }: Omit<CgroupFacts, "node">): Finding {
  if (hierarchy.kind === "hybrid")
    return warn(NAME, "hybrid: mounted beside version 1, which has the controllers", COST, UNIFY);
  if (hierarchy.kind !== "unified")
    return warn(NAME, hierarchy.kind === "v1" ? "version 1 only" : "not mounted", unit ? ENDED : COST, UNIFY);
  const { controllers, isHostRoot } = hierarchy;
  const missing = NEEDED.filter((name) => !controllers.includes(name));
  if (missing.length > 0) {
    const remedy = `Boot a kernel with ${missing.join(", ")}; a container must be given them.`;
    return warn(NAME, `without ${missing.join(", ")}`, COST, remedy);
  }
  if (unit) return judgeUnit(unit, controllers);
  if (!isHostRoot && NEEDED.some((name) => !passedOn.includes(name)))
    return warn(
      NAME,
      "the root here is a container's group, whose processes keep it from passing controllers on",
      COST,
      "Run the service on the host.",
    );
  return ok(NAME, describe(controllers));
}

function judgeUnit(unit: { state: string } | { unknown: string }, controllers: string[]): Finding {
  if ("unknown" in unit)
    return warn(NAME, `systemctl does not answer for ${MACHINES_UNIT}: ${unit.unknown}`, REFUSED);
  if (unit.state === "failed")
    return warn(
      NAME,
      `${MACHINES_UNIT} has failed`,
      "its machines have ended",
      `systemctl status ${MACHINES_UNIT} says why; the next start of a machine starts it again.`,
    );
  if (unit.state === "masked")
    return fail(NAME, `${MACHINES_UNIT} is masked`, REFUSED, `systemctl unmask ${MACHINES_UNIT}`);
  const state = unit.state === "active" ? "which runs" : "which the service starts";
  return ok(NAME, `${describe(controllers)}, below ${MACHINES_UNIT}, ${state}`);
}

const describe = (controllers: string[]) =>
  controllers.includes(DISK)
    ? [...NEEDED, DISK].join(", ")
    : `${NEEDED.join(", ")}; no ${DISK}, so sessions share the disk without weights`;
