/** Removes the nft table that all services of this host share, when the last one stops. */
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { randomId } from "@vivarium/kit/id";
import { findHolder, takeLock } from "./lock.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
/** Chain that the node creates when it switches forwarding on (node/src/host/host-network.ts). */
const FORWARDING_WAS_OFF = "forwarding_was_off";

const PATHS = {
  /** Directory in which the nodes of this host claim slots, for all data directories. */
  slotsDir: "/run/vivarium/slots",
  /** Directory in which the services of this host register, one file each. */
  servicesDir: "/run/vivarium/services",
  table: ["inet", "vivarium"],
};

/**
 * Registers this service as a user of the nft table; call before a node starts. The returned function ends that, and
 * removes the table if no other service is registered and no slot is claimed: machines that keep running, of any
 * service, need it. The host's forwarding is then switched off too, if a node switched it on.
 */
export async function holdNetworkTable(
  url: string,
  { slotsDir, servicesDir, table } = PATHS,
): Promise<() => Promise<void>> {
  await mkdir(servicesDir, { recursive: true, mode: 0o700 });
  const lock = await takeLock(path.join(servicesDir, randomId(8)), url);
  return async () => {
    if ("release" in lock) await lock.release();
    const slots = (await namesIn(slotsDir)).filter((name) => /^\d+$/.test(name));
    const isNeeded = slots.length > 0 || (await countRunning(servicesDir)) > 0;
    if (isNeeded) return;
    await stopForwarding(table);
    await runHostCommand("nft", ["delete", "table", ...table]);
  };
}

/** Switches forwarding off if a node switched it on and it is still on. */
async function stopForwarding(table: string[]): Promise<void> {
  const wasOff = await runHostCommand("nft", ["list", "chain", ...table, FORWARDING_WAS_OFF]);
  if (wasOff.code !== 0) return;
  if ((await readFile(FORWARDING, "utf8")).trim() === "1") await writeFile(FORWARDING, "0");
}

/** Counts the services that run; removes the files of those that were killed. */
async function countRunning(servicesDir: string): Promise<number> {
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
