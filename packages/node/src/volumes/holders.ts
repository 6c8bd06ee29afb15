/**
 * Fences volumes: one machine has a volume, or none. The holder's name is the target of a link in the volume's folder, which
 * appears and goes in one step. QEMU's own lock on the image keeps a second one away in any case.
 */
import { existsSync } from "node:fs";
import { chmod, chown, link, readlink, rm, symlink } from "node:fs/promises";
import path from "node:path";
import { crashPoint } from "@vivarium/kit/crash-point";
import { syncPath } from "@vivarium/kit/durable-file";
import { NodeError } from "../node-error.ts";
import { imagePath, volumeDir, volumeIds } from "./images.ts";

const holderPath = (dataDir: string, id: string) => path.join(volumeDir(dataDir, id), "holder");

/** The machine that has the volume. */
export async function holderOf(dataDir: string, id: string): Promise<string | undefined> {
  try {
    return await readlink(holderPath(dataDir, id));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** Gives the volume to the machine, or refuses if another one has it. Again: nothing. */
export async function holdVolume(dataDir: string, id: string, machineId: string): Promise<void> {
  try {
    await symlink(machineId, holderPath(dataDir, id));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT") throw new NodeError("volume_not_found", `no volume ${id} on this node`);
    if (code !== "EEXIST") throw error;
    const holder = await holderOf(dataDir, id);
    if (holder !== machineId)
      throw new NodeError("volume_held", `volume ${id} is attached to machine ${holder ?? "of before"}`);
  }
  await syncPath(volumeDir(dataDir, id));
  crashPoint("volume.held");
}

/** Gives the image a second name in the folder of QEMU's sockets, which the jail shows it, and the machine's user. */
export async function offerImage(
  dataDir: string,
  id: string,
  { target, uid }: { target: string; uid: number },
): Promise<void> {
  const image = imagePath(dataDir, id);
  await chown(image, uid, uid);
  await chmod(image, 0o600);
  await rm(target, { force: true });
  await link(image, target);
  crashPoint("volume.offered");
}

/** Takes the volume from a machine whose processes have ended. What they wrote is on disk when this returns. */
export async function releaseVolume(dataDir: string, id: string, machineId: string): Promise<void> {
  if ((await holderOf(dataDir, id)) !== machineId) return;
  const image = imagePath(dataDir, id);
  if (existsSync(image)) {
    await syncPath(image);
    await chown(image, 0, 0);
  }
  crashPoint("volume.saved");
  await rm(holderPath(dataDir, id), { force: true });
  await syncPath(volumeDir(dataDir, id));
  crashPoint("volume.released");
}

/** At the daemon's start: takes volumes from machines of which nothing is left. */
export async function releaseOfNobody(
  dataDir: string,
  isKnown: (machineId: string) => boolean,
): Promise<void> {
  for (const id of await volumeIds(dataDir)) {
    const holder = await holderOf(dataDir, id);
    if (holder !== undefined && !isKnown(holder)) await releaseVolume(dataDir, id, holder);
  }
}
