/**
 * A snapshot is a folder: device state, memory, disk layer, and a manifest that is renamed into place after everything
 * else is on disk. QEMU accepts damaged state silently, so the manifest carries the hash of each file and they are
 * verified before the first load (security.md finding 2).
 */
import { open, readFile, rename, stat } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { hashFile, type QemuRoot } from "../host/qemu-root.ts";
import { deviceArgumentsHash, type MachineShape } from "../qemu/arguments.ts";

const SNAPSHOT_FILES = ["state", "mem", "disk.qcow2", "empty.qcow2"] as const;

const FileEntry = z.object({ bytes: z.int(), sha256: z.string() });
export const Manifest = z.object({
  format: z.literal(1),
  template: z.string(),
  version: z.string(),
  size: z.string(),
  accelerator: z.enum(["kvm", "tcg"]),
  vcpus: z.int(),
  mem_mb: z.int(),
  disk_gb: z.int(),
  qemu_build: z.string(),
  device_arguments: z.string(),
  created_at: z.string(),
  files: z.record(z.enum(SNAPSHOT_FILES), FileEntry),
});
export type Manifest = z.infer<typeof Manifest>;

export const shapeOf = (manifest: Manifest): MachineShape => ({
  accelerator: manifest.accelerator,
  vcpus: manifest.vcpus,
  memMb: manifest.mem_mb,
});

export async function describeFiles(dir: string): Promise<Manifest["files"]> {
  const entries = await Promise.all(
    SNAPSHOT_FILES.map(async (name) => {
      const file = path.join(dir, name);
      return [name, { bytes: (await stat(file)).size, sha256: await hashFile(file) }] as const;
    }),
  );
  return Object.fromEntries(entries) as Manifest["files"];
}

/** Content first, then the manifest under another name, then the rename: the rename is the durability point. */
export async function publishManifest(dir: string, manifest: Manifest): Promise<void> {
  for (const name of SNAPSHOT_FILES) await syncPath(path.join(dir, name));
  const partial = path.join(dir, "manifest.json.tmp");
  const file = await open(partial, "w", 0o444);
  await file.writeFile(`${JSON.stringify(manifest, null, 2)}\n`);
  await file.sync();
  await file.close();
  await rename(partial, path.join(dir, "manifest.json"));
  await syncPath(dir);
}

export async function readManifest(dir: string): Promise<Manifest> {
  return Manifest.parse(JSON.parse(await readFile(path.join(dir, "manifest.json"), "utf8")));
}

/** Throws with the reason when this snapshot must not be loaded here. */
export async function verifySnapshot(dir: string, manifest: Manifest, qemu: QemuRoot): Promise<void> {
  if (manifest.qemu_build !== qemu.buildId) throw new Error("it was made by another QEMU build; bake again");
  if (manifest.device_arguments !== deviceArgumentsHash(shapeOf(manifest))) {
    throw new Error("it was made with other devices; bake again");
  }
  const found = await describeFiles(dir);
  for (const name of SNAPSHOT_FILES) {
    if (found[name].sha256 !== manifest.files[name].sha256) throw new Error(`${name} is damaged; bake again`);
  }
}

export async function syncPath(target: string): Promise<void> {
  const handle = await open(target, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
