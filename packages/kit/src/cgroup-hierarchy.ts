/** Reads which version of cgroups a host has. */
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";

export const CGROUP_ROOT = "/sys/fs/cgroup";

/**
 * - `unified`: version 2 alone. `isHostRoot`: the mounted root is that of the host, and not a group that a container
 *   was put into.
 * - `hybrid`: version 2 beside version 1, which has the controllers.
 * - `v1`: version 1 alone.
 */
export type CgroupHierarchy =
  | { kind: "unified"; controllers: string[]; isHostRoot: boolean }
  | { kind: "hybrid" | "v1" | "none" };

export function readCgroupHierarchy(root = CGROUP_ROOT): CgroupHierarchy {
  const controllers = readWords(path.join(root, "cgroup.controllers"));
  // The file `cgroup.type` exists in every group but the root of all.
  if (controllers)
    return { kind: "unified", controllers, isHostRoot: !existsSync(path.join(root, "cgroup.type")) };
  if (existsSync(path.join(root, "unified/cgroup.controllers"))) return { kind: "hybrid" };
  const isV1 = ["memory", "cpu", "cpu,cpuacct", "systemd"].some((name) => existsSync(path.join(root, name)));
  return { kind: isV1 ? "v1" : "none" };
}

/** Words of a file such as `cgroup.controllers`. Undefined if there is no such file. */
export function readWords(file: string): string[] | undefined {
  try {
    return readFileSync(file, "utf8").split(/\s+/).filter(Boolean);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
