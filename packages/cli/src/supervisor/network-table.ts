import { mkdir, readdir } from "node:fs/promises";
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
    const services = await namesIn(servicesDir);
    const holders = await Promise.all(services.map((name) => findHolder(path.join(servicesDir, name))));
    const isNeeded = slots.length > 0 || holders.some((holder) => holder !== undefined);
    if (!isNeeded) await runHostCommand("nft", ["delete", "table", ...table]);
  };
}

const namesIn = (dir: string) => readdir(dir).catch(() => []);
