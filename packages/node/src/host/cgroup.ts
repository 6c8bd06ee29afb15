/** Gives each machine a cgroup with limits, named after its slot, where the host has cgroup v2 with controllers. */
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import path from "node:path";
import type { MachineShape } from "../qemu/arguments.ts";
import { limitsOf } from "./cgroup-limits.ts";
import {
  type CgroupHost,
  type Parent,
  possibleParents,
  prepareParent,
  releaseParent,
  THIS_HOST,
} from "./cgroup-parent.ts";
import { removeGroup } from "./cgroup-removal.ts";
import { explainMemoryKill } from "./memory-kill.ts";
import type { Slot } from "./slots.ts";

export async function openCgroups(host: CgroupHost = THIS_HOST): Promise<Cgroups> {
  return new Cgroups(host, await prepareParent(host));
}

export class Cgroups {
  readonly #host: CgroupHost;
  #parent: Parent;

  constructor(host: CgroupHost, parent: Parent) {
    this.#host = host;
    this.#parent = parent;
  }

  /** Limits that machines are without, and why. Undefined if they have all. */
  get lack(): string | undefined {
    return this.#parent.lack;
  }

  /** Makes the group of a machine, for its first process to enter. Undefined if this host has none. */
  async make(slot: Slot, shape: MachineShape): Promise<string | undefined> {
    if (this.#parent.group === undefined) return undefined;
    await this.remove(slot);
    const { group, controllers } = await this.#parentNow();
    const leaf = leafOf(group, slot);
    await mkdir(leaf);
    for (const { file, value, isOptional } of limitsOf(shape, { controllers, hostBytes: totalmem() })) {
      await writeFile(path.join(leaf, file), value).catch((error: unknown) => {
        if (!isOptional) throw error;
      });
    }
    return leaf;
  }

  /** Kills all processes of the slot's machine and removes its group. Rejects if one does not end. */
  async remove(slot: Slot): Promise<void> {
    const parents = possibleParents(this.#host, this.#parent);
    for (const parent of parents) await removeGroup(leafOf(parent, slot), this.#host.endLimitMs);
  }

  /** Gives back the group of all machines, if it was made for them. Call while no machine and no node of this host needs it. */
  async release(): Promise<void> {
    await releaseParent(this.#host, this.#parent);
  }

  /** Why the kernel killed the slot's machine for memory; undefined if it did not. Call before the group is removed. */
  memoryKillOf(slot: Pick<Slot, "number">): string | undefined {
    for (const parent of possibleParents(this.#host, this.#parent)) {
      const found = explainMemoryKill(leafOf(parent, slot));
      if (found !== undefined) return found;
    }
    return undefined;
  }

  /** The parent, made again if it is gone: an operator may have stopped the unit, and with it all machines. */
  async #parentNow(): Promise<Parent & { group: string }> {
    const known = this.#parent;
    if (known.group !== undefined && existsSync(known.group)) return known;
    this.#parent = await prepareParent(this.#host);
    if (this.#parent.group !== undefined) return this.#parent;
    throw new Error(`the group of all machines is gone and cannot be made again: ${this.#parent.lack}`);
  }
}

/**
 * The command as one that enters the group first. So all that it starts is in the group, also bubblewrap, which waits
 * outside of the jail for QEMU's end, and no page stays charged to this process's own group.
 */
export function entering(group: string | undefined, argv: string[]): string[] {
  if (group === undefined) return argv;
  return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', path.join(group, "cgroup.procs"), ...argv];
}

const leafOf = (parent: string, slot: Pick<Slot, "number">) => path.join(parent, `slot-${slot.number}`);
