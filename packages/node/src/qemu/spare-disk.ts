/**
 * Exchanges the medium of the spare disk over QEMU's monitor. The guest has no driver for that disk meanwhile, and finds
 * the size of the medium when it binds one.
 */
import { z } from "zod";
import { JAIL_PATHS, SPARE_DISK } from "./arguments.ts";
import type { Qmp } from "./qmp.ts";

const VOLUME = "volume";
const Blocks = z.array(
  z.object({
    qdev: z.string().optional(),
    inserted: z.object({ "node-name": z.string().optional() }).optional(),
  }),
);

/** Whether the volume is the medium of the spare disk. QEMU is not believed further than its own guest. */
export async function hasMedium(qmp: Qmp): Promise<boolean> {
  const blocks = Blocks.parse(await qmp.execute("query-block"));
  return blocks.some(({ qdev, inserted }) => qdev === SPARE_DISK && inserted?.["node-name"] === VOLUME);
}

/**
 * Makes the file at `JAIL_PATHS.volume` the medium. Its format is given, so that nothing that the guest wrote into it is taken
 * for the header of another one. QEMU locks the file, and refuses one that another QEMU has.
 */
export async function insertMedium(qmp: Qmp): Promise<void> {
  const file = { driver: "file", filename: JAIL_PATHS.volume, locking: "on", discard: "unmap" };
  const node = { "node-name": VOLUME, driver: "raw", discard: "unmap", "detect-zeroes": "unmap", file };
  await qmp.execute("blockdev-add", node);
  await qmp.execute("qom-set", {
    path: `/machine/peripheral/${SPARE_DISK}`,
    property: "drive",
    value: VOLUME,
  });
}
