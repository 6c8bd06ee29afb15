/** Writes small files of a saved machine, and a manifest that matches them. */
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { deviceArgumentsHash } from "../src/qemu/arguments.ts";
import { describeFiles, devicesOf, type Loadable, SNAPSHOT_FILES } from "../src/snapshots/manifest.ts";
import { PAGE_BYTES, sumMemory } from "../src/snapshots/page-sums.ts";

/** The QEMU whose build the manifest names. */
export const QEMU = { dir: "", buildId: "build", version: "10.0.0" };
const PAGES = 4;

/** Returns the manifest without writing it, so that the snapshot is not published. */
export async function makeLoadable(dir: string): Promise<Loadable> {
  await mkdir(dir, { recursive: true });
  for (const file of SNAPSHOT_FILES) await writeFile(path.join(dir, file), file);
  const memory = path.join(dir, "mem");
  await writeFile(memory, Buffer.alloc(PAGES * PAGE_BYTES, 7));
  await writeFile(path.join(dir, "mem.sums"), (await sumMemory(memory, PAGES * PAGE_BYTES)).toBytes());
  const manifest: Loadable["manifest"] = {
    ...{ format: 2, kind: "snapshot", template: "base", version: "1", size: "small", accelerator: "tcg" },
    ...{ vcpus: 1, mem_mb: 1024, disk_gb: 8, qemu_build: QEMU.buildId, device_arguments: "" },
    ...{ created_at: "2027-01-01T00:00:00.000Z", own_bytes: 7, files: await describeFiles(dir) },
  };
  return {
    dir,
    manifest: { ...manifest, device_arguments: deviceArgumentsHash(manifest, devicesOf(manifest)) },
  };
}
