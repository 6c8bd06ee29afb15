/** Gives each machine a cgroup with limits, named after its slot, where the host has cgroup v2 with controllers. */
import { existsSync } from "node:fs";
import { mkdir, rmdir, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import path from "node:path";
import { messageOf } from "@vivarium/kit/unknown-error";
import { NodeError } from "../node-error.ts";
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

/** `onRefusal` gets the reason when machines begin to be refused, and undefined once one has its limits again. */
export async function openCgroups(
  host: CgroupHost = THIS_HOST,
  onRefusal: (reason: string | undefined) => void = () => {},
): Promise<Cgroups> {
  return new Cgroups(host, await prepareParent(host), onRefusal);
}

export class Cgroups {
  readonly #host: CgroupHost;
  readonly #onRefusal: (reason: string | undefined) => void;
  #parent: Parent;
  #refusal: string | undefined;
  #preparing: Promise<Parent> | undefined;

  constructor(host: CgroupHost, parent: Parent, onRefusal: (reason: string | undefined) => void = () => {}) {
    this.#host = host;
    this.#parent = parent;
    this.#onRefusal = onRefusal;
    this.#refusal = isFault(parent) ? parent.lack : undefined;
  }

  /** Limits that machines are without, and why. Undefined if they have all. */
  get lack(): string | undefined {
    return this.#refusal ?? this.#parent.lack;
  }

  /** Why machines are refused: the host has limits to give, and the last try to set them has failed. */
  get refusal(): string | undefined {
    return this.#refusal;
  }

  /**
   * Makes the group of a machine, for its first process to enter. Undefined if the host has no limits to give. If it has, and
   * they cannot be set, the machine is refused and none runs without them; the next machine tries again.
   */
  async make(slot: Slot, shape: MachineShape): Promise<string | undefined> {
    await this.remove(slot);
    try {
      const group = await this.#makeGroup(slot, shape);
      this.#setRefusal(undefined);
      return group;
    } catch (cause) {
      this.#setRefusal(messageOf(cause));
      throw new NodeError("no_capacity", "this node cannot set the limits of a machine at the moment", {
        cause,
      });
    }
  }

  #setRefusal(reason: string | undefined): void {
    if (reason !== this.#refusal) this.#onRefusal(reason);
    this.#refusal = reason;
  }

  async #makeGroup(slot: Slot, shape: MachineShape): Promise<string | undefined> {
    const parent = await this.#parentNow();
    if (parent.group === undefined) return undefined;
    try {
      return await makeLeaf(parent, slot, shape);
    } catch {
      // The tree may have changed behind this process: another one took controllers away, or the group itself.
      return await makeLeaf(await this.#prepareWithGroup(), slot, shape);
    }
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

  /**
   * The parent, made again if it is gone or lacks something: an operator may have stopped the unit, and with it all machines,
   * and systemd may not have answered before.
   */
  async #parentNow(): Promise<Parent> {
    const known = this.#parent;
    if (known.group !== undefined && existsSync(known.group)) {
      if (known.lack !== undefined) await this.#prepare();
      return this.#parent;
    }
    if (known.group !== undefined) return await this.#prepareWithGroup();
    const parent = await this.#prepare();
    if (isFault(parent)) throw new Error(parent.lack);
    return parent;
  }

  /** On a host whose machines had limits before. */
  async #prepareWithGroup(): Promise<Parent & { group: string }> {
    const parent = await this.#prepare();
    if (parent.group !== undefined) return parent;
    throw new Error(`the group of all machines is gone and cannot be made again: ${parent.lack}`);
  }

  /** Machines that start at the same time share one try. A group that was known stays so: its machines are in it. */
  async #prepare(): Promise<Parent> {
    this.#preparing ??= prepareParent(this.#host).finally(() => {
      this.#preparing = undefined;
    });
    const parent = await this.#preparing;
    if (parent.group !== undefined || this.#parent.group === undefined) this.#parent = parent;
    return parent;
  }
}

const isFault = (parent: Parent) => parent.group === undefined && parent.isFault === true;

/** A group with all limits, or no group. */
async function makeLeaf(
  { group, controllers }: Parent & { group: string },
  slot: Slot,
  shape: MachineShape,
): Promise<string> {
  const leaf = leafOf(group, slot);
  await mkdir(leaf);
  try {
    for (const { file, value, isOptional } of limitsOf(shape, { controllers, hostBytes: totalmem() })) {
      await writeFile(path.join(leaf, file), value).catch((error: unknown) => {
        if (!isOptional) throw error;
      });
    }
  } catch (error) {
    await rmdir(leaf).catch(() => {});
    throw error;
  }
  return leaf;
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
