import { readdir } from "node:fs/promises";
import { runHostCommand } from "./host-command.ts";

/** Where the nodes of this host take their slots, whatever their data directory. */
const SLOTS_DIR = "/run/vivarium/slots";
const TABLE = ["inet", "vivarium"];

/**
 * The one nft table of Vivarium goes with the last slot of this host. Machines that run on need it, be they of this
 * service or of another.
 */
export async function removeNetworkTable(slotsDir = SLOTS_DIR, table = TABLE): Promise<void> {
  const slots = (await readdir(slotsDir).catch(() => [])).filter((name) => /^\d+$/.test(name));
  if (slots.length === 0) await runHostCommand("nft", ["delete", "table", ...table]);
}
