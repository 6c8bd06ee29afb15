/** The unit that holds the groups of all machines of this host, for the install and the uninstall. */
import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { writeDurably } from "@vivarium/kit/durable-file";
import { requireSystemctl, UNITS_DIR } from "./systemd.ts";
import { machinesUnit, readUnit } from "./unit-text.ts";

export const MACHINES_UNIT_FILE = path.join(UNITS_DIR, MACHINES_UNIT);

/** Writes it, unless an operator has one of their own. */
export async function writeMachinesUnit(file = MACHINES_UNIT_FILE): Promise<void> {
  const present = await textOf(file);
  if (present === undefined || readUnit(present)) await writeDurably(file, machinesUnit(), 0o644);
}

/** Whether it is there and ours. */
export async function hasMachinesUnit(file = MACHINES_UNIT_FILE): Promise<boolean> {
  return readUnit((await textOf(file)) ?? "") !== undefined;
}

/** Stops it, which systemd refuses of the unit as it is, and removes it. Its file remains until then: a repetition finds it. */
export async function removeMachinesUnit(file = MACHINES_UNIT_FILE): Promise<void> {
  await writeDurably(file, machinesUnit({ mayStop: true }), 0o644);
  await requireSystemctl("daemon-reload");
  await requireSystemctl("stop", MACHINES_UNIT);
  await rm(file);
  await requireSystemctl("daemon-reload");
}

const textOf = (file: string) => readFile(file, "utf8").catch(() => undefined);
