/** The services that run on this host. The last one to stop removes what all share: the nft table and the machines' unit. */
import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { runHostCommand } from "@vivarium/kit/host-command";
import { randomId } from "@vivarium/kit/id";
import { removeHostTable } from "./host-settings.ts";
import { findHolder, takeLock } from "./lock.ts";

const PATHS = {
  /** Directory in which the nodes of this host claim slots, for all data directories. */
  slotsDir: "/run/vivarium/slots",
  /** Directory in which the services of this host register, one file each. */
  servicesDir: "/run/vivarium/services",
  table: ["inet", "vivarium"],
  unit: MACHINES_UNIT,
};

/**
 * Registers this service; call before a node starts. The returned function ends that, and removes table and unit if no
 * other service is registered and no slot is claimed: machines that keep running, of any service, need both. The host's
 * settings that nodes have changed, as forwarding, are then put back.
 */
export async function registerService(
  url: string,
  { slotsDir, servicesDir, table, unit } = PATHS,
): Promise<() => Promise<void>> {
  await mkdir(servicesDir, { recursive: true, mode: 0o700 });
  const lock = await takeLock(path.join(servicesDir, randomId(8)), url);
  return async () => {
    if ("release" in lock) await lock.release();
    const slots = (await namesIn(slotsDir)).filter((name) => /^\d+$/.test(name));
    const isNeeded = slots.length > 0 || (await countServices(servicesDir)) > 0;
    if (isNeeded) return;
    await removeHostTable(table);
    await stopTransientUnit(unit);
  };
}

/** Stops the unit of machines if a node started it (node/src/host/cgroup-parent.ts); one that is installed stays. */
async function stopTransientUnit(unit: string): Promise<void> {
  const { stdout } = await runHostCommand("systemctl", ["show", "--property=FragmentPath", unit]);
  if (!stdout.startsWith("FragmentPath=/run/systemd/transient/")) return;
  await runHostCommand("systemctl", ["stop", unit]);
}

/** Counts the services of this host that run; removes the files of those that were killed. */
export async function countServices(servicesDir = PATHS.servicesDir): Promise<number> {
  // A name with a dot is a draft that is still being written.
  const files = (await namesIn(servicesDir))
    .filter((name) => !name.includes("."))
    .map((name) => path.join(servicesDir, name));
  const holders = await Promise.all(files.map((file) => findHolder(file)));
  const left = files.filter((_, index) => holders[index] === undefined);
  await Promise.all(left.map((file) => rm(file, { force: true })));
  return files.length - left.length;
}

const namesIn = (dir: string) => readdir(dir).catch(() => []);
