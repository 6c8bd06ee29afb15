import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { randomId } from "@vivarium/kit/id";
import { findHolder, takeLock } from "./lock.ts";

const FORWARDING = "/proc/sys/net/ipv4/ip_forward";
/** The node makes this chain when it switches forwarding on (node/src/host/host-network.ts). */
const FORWARDING_WAS_OFF = "forwarding_was_off";

const PATHS = {
  /** Where the nodes of this host claim their slots, for every data directory. */
  slotsDir: "/run/vivarium/slots",
  /** Where the services of this host register, one file each. */
  servicesDir: "/run/vivarium/services",
  table: ["inet", "vivarium"],
};

/**
 * All services of this host share one nft table of Vivarium. From this call, which comes before a node starts, until
 * the returned function is called, no service removes the table. The last service removes it when no slot is left:
 * machines that keep running need it, of any service. The host's forwarding is then switched off too, if a node of ours
 * switched it on.
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

/** Only if forwarding is still as a node of ours left it, and was off before. */
async function stopForwarding(table: string[]): Promise<void> {
  const wasOff = await runHostCommand("nft", ["list", "chain", ...table, FORWARDING_WAS_OFF]);
  if (wasOff.code !== 0) return;
  if ((await readFile(FORWARDING, "utf8")).trim() === "1") await writeFile(FORWARDING, "0");
}

/** Removes the files of services that were killed. */
async function countRunning(servicesDir: string): Promise<number> {
  // A name with a dot is a file that is still being written.
  const files = (await namesIn(servicesDir))
    .filter((name) => !name.includes("."))
    .map((name) => path.join(servicesDir, name));
  const holders = await Promise.all(files.map((file) => findHolder(file)));
  const left = files.filter((_, index) => holders[index] === undefined);
  await Promise.all(left.map((file) => rm(file, { force: true })));
  return files.length - left.length;
}

const namesIn = (dir: string) => readdir(dir).catch(() => []);
