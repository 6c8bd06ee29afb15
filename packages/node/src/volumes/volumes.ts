/** Makes, grows, lists and removes volumes for control (contract/node volumes.ts), one step per volume at a time. */
import type { VolumeStatus } from "@vivarium/contract/node";
import { SerialQueue } from "@vivarium/kit/serial-queue";
import { GIB } from "@vivarium/kit/sizes";
import type { DiskGate } from "../disks/gate.ts";
import { NodeError } from "../node-error.ts";
import { holderOf, holdVolume } from "./holders.ts";
import { growImage, lookAt, makeImage, removeImage, volumeIds } from "./images.ts";

/** Bytes that the file system of an empty volume takes, rounded up. */
const EMPTY_BYTES = 64 * 2 ** 20;

interface VolumesInit {
  dataDir: string;
  gate: Pick<DiskGate, "reserve">;
}

export class Volumes {
  readonly #init: VolumesInit;
  /** Work on images and holders, in order: a volume that is removed is not attached meanwhile. */
  readonly #queue = new SerialQueue();

  constructor(init: VolumesInit) {
    this.#init = init;
  }

  async put(id: string, sizeGb: number): Promise<VolumeStatus> {
    const { dataDir, gate } = this.#init;
    return await this.#queue.run(async () => {
      const known = await this.#statusOf(id);
      if (known && known.size_gb >= sizeGb) return known;
      if (known?.machine_id) throw held(id, known.machine_id);
      const release = await gate.reserve(EMPTY_BYTES);
      try {
        if (known) await growImage(dataDir, id, sizeGb);
        else await makeImage(dataDir, id, sizeGb);
      } finally {
        release();
      }
      const made = await this.#statusOf(id);
      if (!made) throw new NodeError("internal", `volume ${id} was made and is not there`);
      return made;
    });
  }

  async list(): Promise<VolumeStatus[]> {
    const ids = await volumeIds(this.#init.dataDir);
    const all = await Promise.all(ids.map((id) => this.#statusOf(id)));
    return all.filter((status) => status !== undefined);
  }

  async remove(id: string): Promise<void> {
    const { dataDir } = this.#init;
    await this.#queue.run(async () => {
      const holder = await holderOf(dataDir, id);
      if (holder !== undefined) throw held(id, holder);
      await removeImage(dataDir, id);
    });
  }

  /** Gives the volume to a machine, with at least this size. */
  async hold(id: string, sizeGb: number, machineId: string): Promise<void> {
    const { dataDir } = this.#init;
    await this.#queue.run(async () => {
      if (!(await lookAt(dataDir, id)))
        throw new NodeError("volume_not_found", `no volume ${id} on this node`);
      await holdVolume(dataDir, id, machineId);
      await growImage(dataDir, id, sizeGb);
    });
  }

  async #statusOf(id: string): Promise<VolumeStatus | undefined> {
    const { dataDir } = this.#init;
    const found = await lookAt(dataDir, id);
    if (!found) return undefined;
    const machine_id = await holderOf(dataDir, id);
    return { volume_id: id, size_gb: Math.floor(found.size / GIB), bytes: found.bytes, machine_id };
  }
}

const held = (id: string, machineId: string) =>
  new NodeError("volume_held", `volume ${id} is attached to machine ${machineId}`);
