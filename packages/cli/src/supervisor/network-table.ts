import { mkdir, readdir, rm } from "node:fs/promises";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { runHostCommand } from "./host-command.ts";
import { findHolder, takeLock } from "./lock.ts";

interface Places {
  /** Where the nodes of this host take their slots, whatever their data directory. */
  slotsDir: string;
  /** Where its services say that they run, a file each. */
  servicesDir: string;
  table: string[];
}

const PLACES: Places = {
  slotsDir: "/run/vivarium/slots",
  servicesDir: "/run/vivarium/services",
  table: ["inet", "vivarium"],
};

/**
 * The one nft table of Vivarium is all services' of this host: from this call, before a node starts, until the function
 * it returns is called, no service removes it. It goes with the last service and the last slot: machines that run on
 * need it, be they of this service or of another.
 */
export async function holdNetworkTable(
  url: string,
  { slotsDir, servicesDir, table }: Places = PLACES,
): Promise<() => Promise<void>> {
  await mkdir(servicesDir, { recursive: true, mode: 0o700 });
  const lock = await takeLock(path.join(servicesDir, randomId(8)), url);
  return async () => {
    if ("release" in lock) await lock.release();
    const slots = (await namesIn(slotsDir)).filter((name) => /^\d+$/.test(name));
    const isNeeded = slots.length > 0 || (await countRunning(servicesDir)) > 0;
    if (!isNeeded) await runHostCommand("nft", ["delete", "table", ...table]);
  };
}

/** Removes what services have left that were killed. */
async function countRunning(servicesDir: string): Promise<number> {
  // A name with a dot is of a file that is being written.
  const files = (await namesIn(servicesDir))
    .filter((name) => !name.includes("."))
    .map((name) => path.join(servicesDir, name));
  const holders = await Promise.all(files.map((file) => findHolder(file)));
  const left = files.filter((_, index) => holders[index] === undefined);
  await Promise.all(left.map((file) => rm(file, { force: true })));
  return files.length - left.length;
}

const namesIn = (dir: string) => readdir(dir).catch(() => []);
