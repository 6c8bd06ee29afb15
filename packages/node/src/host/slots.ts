/**
 * Takes and frees slots. A slot is one number per machine on this host, from which its uid, namespace and addresses
 * follow. It is a file made exclusively under /run, so that several services on one host never share one, and it names
 * the owner: the data directory.
 */
import { existsSync } from "node:fs";
import { link, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { NodeError } from "../node-error.ts";
import { claimedOwners } from "./claims.ts";

const SLOTS_DIR = "/run/vivarium/slots";
const FIRST_UID = 700_000;
/** End of a bake's owner, behind the data directory. */
const BAKE = "#bake";

/** The owner of a data directory's bakes. */
export const bakeOwner = (dataDir: string) => `${dataDir}${BAKE}`;

export interface Slot {
  number: number;
  /** Unique uid and gid of this slot's QEMU. */
  uid: number;
  netns: string;
  hostLink: string;
  /** Host end and namespace end of the slot's link, a /31. */
  hostAddress: string;
  machineAddress: string;
}

export function slotOf(number: number): Slot {
  const offset = number * 2;
  const prefix = `10.220.${offset >> 8}`;
  return {
    number,
    uid: FIRST_UID + number,
    netns: `viv-${number}`,
    hostLink: `viv${number}`,
    hostAddress: `${prefix}.${offset & 255}`,
    machineAddress: `${prefix}.${(offset & 255) + 1}`,
  };
}

/** Takes a free slot. Its file has the owner's name as content before it appears, so that no slot is without an owner. */
export async function takeSlot(owner: string, limit: number): Promise<Slot> {
  await mkdir(SLOTS_DIR, { recursive: true, mode: 0o700 });
  const unnamed = path.join(SLOTS_DIR, `.${process.pid}-${randomId(8)}`);
  await writeFile(unnamed, owner, { mode: 0o600 });
  try {
    for (let number = 1; number <= limit; number++) {
      try {
        await link(unnamed, path.join(SLOTS_DIR, String(number)));
        return slotOf(number);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
      }
    }
  } finally {
    await rm(unnamed, { force: true });
  }
  throw new NodeError("no_capacity", `all ${limit} machine slots of this node are taken; try again later`);
}

/** Removes temporary files of processes of this owner that were killed in `takeSlot`. None may be in it now. */
export async function removeUnnamedSlots(owner: string): Promise<void> {
  for (const name of (await readdir(SLOTS_DIR).catch(() => [])).filter((name) => name.startsWith("."))) {
    const file = path.join(SLOTS_DIR, name);
    if ((await readFile(file, "utf8").catch(() => "")) === owner) await rm(file, { force: true });
  }
}

export async function freeSlot(slot: Slot): Promise<void> {
  await rm(path.join(SLOTS_DIR, String(slot.number)), { force: true });
}

/** The slots of this owner, with a machine or without. */
export async function slotsOf(owner: string): Promise<Slot[]> {
  return (await takenSlots()).filter((taken) => taken.owner === owner).map(({ slot }) => slot);
}

/** Slots of services that do not run and whose data directory was removed, so that their owner will never free them. */
export async function orphanedSlots(dirs: { slotsDir?: string; claimsDir?: string } = {}): Promise<Slot[]> {
  const taken = await takenSlots(dirs.slotsDir);
  // Read after the slots: a service claims its slots before it takes one.
  const claimed = await claimedOwners(dirs.claimsDir);
  const isGone = (owner: string) => owner.startsWith("/") && !existsSync(owner) && !existsSync(dirOf(owner));
  return taken.filter(({ owner }) => isGone(owner) && !claimed.has(owner)).map(({ slot }) => slot);
}

/** Whether another node or bake runs on this host, or a machine of any: they need what all share. */
export async function isHostUsed(
  owner: string,
  dirs: { slotsDir?: string; claimsDir?: string } = {},
): Promise<boolean> {
  const owners = [...(await claimedOwners(dirs.claimsDir))];
  return owners.some((other) => other !== owner) || (await takenSlots(dirs.slotsDir)).length > 0;
}

/** The data directory of an owner. A bake is an owner of its own; a `#` elsewhere is part of the directory's name. */
const dirOf = (owner: string) => (owner.endsWith(BAKE) ? owner.slice(0, -BAKE.length) : owner);

async function takenSlots(dir = SLOTS_DIR): Promise<{ slot: Slot; owner: string }[]> {
  const names = (await readdir(dir).catch(() => [])).filter((name) => /^\d+$/.test(name));
  const ownerOf = (name: string) => readFile(path.join(dir, name), "utf8").catch(() => "");
  return Promise.all(names.map(async (name) => ({ slot: slotOf(Number(name)), owner: await ownerOf(name) })));
}
