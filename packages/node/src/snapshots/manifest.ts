/**
 * Writes, reads and verifies the manifest of a snapshot. A snapshot is a self-contained folder: device state, memory,
 * disk, the layers below it, and a manifest that is renamed into place after everything else is on disk. Baselines and
 * saved sessions have the same form. QEMU accepts damaged state silently, so the manifest describes each file.
 */
import { existsSync } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { CaptureTimings, SnapshotSpec } from "@vivarium/contract/node";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { z } from "zod";
import { hashFile, type QemuRoot, rootOf } from "../host/qemu-root.ts";
import { deviceArgumentsHash, type MachineShape, unrecordedDevices } from "../qemu/arguments.ts";
import { GuestCpu } from "../qemu/cpu-model.ts";
import { crcOfFile } from "./file-crc.ts";
import { UnusableSnapshot } from "./page-sums.ts";
import type { SumsThread } from "./sums-thread.ts";

/**
 * Files of a snapshot. `mem` is verified page by page with `mem.sums`, `disk.qcow2` with a CRC, and `base.raw`, which
 * the snapshots of a template version share, by its modification time and blocks.
 */
export const SNAPSHOT_FILES = ["state", "mem", "mem.sums", "disk.qcow2", "layer.qcow2", "base.raw"] as const;
/**
 * Files that a sealed snapshot has beside them: its own pages of memory, and the part of its disk that is not sealed, which its
 * first machine was started from. Its `mem` is the memory of that state, and its `state` is a sealed file.
 */
export const SEALED_FILES = ["mem.sealed", "under.qcow2"] as const;
type SealedFile = (typeof SEALED_FILES)[number];
export type SnapshotFile = (typeof SNAPSHOT_FILES)[number] | SealedFile;
/** Files that are verified with SHA-256. */
const HASHED = new Set<SnapshotFile>(["state", "mem.sums", "layer.qcow2"]);
/** Files that are verified with a CRC. */
const SUMMED = new Set<SnapshotFile>(["disk.qcow2", ...SEALED_FILES]);

const FileEntry = z.object({
  bytes: z.int(),
  /** Modification time: nanoseconds since 1970, as text. */
  mtime: z.string(),
  blocks: z.int(),
  sha256: z.string().optional(),
  crc32: z.int().optional(),
});
export type FileEntry = z.infer<typeof FileEntry>;

export const Manifest = z.object({
  format: z.literal(2),
  kind: z.enum(["baseline", "snapshot"]),
  template: z.string(),
  version: z.string(),
  size: z.string(),
  accelerator: z.enum(["kvm", "tcg"]),
  vcpus: z.int(),
  mem_mb: z.int(),
  disk_gb: z.int(),
  qemu_build: z.string(),
  /** The guest's CPU. Absent in states of an earlier version. */
  cpu: GuestCpu.optional(),
  /** QEMU's arguments for machine, CPU and devices when the baseline was baked. Absent: `unrecordedDevices`. */
  devices: z.array(z.string()).optional(),
  /** Hash of `devices` and, with KVM and without `cpu`, of the host CPU's model. */
  device_arguments: z.string(),
  created_at: z.string(),
  /** Set if the user's processes were not frozen: it can continue only as the same machine, not become another one. */
  unfrozen: z.literal(true).optional(),
  /** `false`: it is the disk alone. A machine that is started from it boots, with empty memory. */
  memory: z.literal(false).optional(),
  /** Whether the disk has all that the guest had written: what a snapshot of the disk alone needs. */
  flushed: z.literal(true).optional(),
  /** Bytes stored for this snapshot, without blocks that were shared with other files when it was made. */
  own_bytes: z.int(),
  /** The spec of the capture or copy; absent in baselines. */
  spec: SnapshotSpec.optional(),
  timings: CaptureTimings.optional(),
  files: z.partialRecord(z.enum(SNAPSHOT_FILES), FileEntry),
  /** Set if it is sealed with a session's state key. */
  sealed: z
    .object({
      key_id: z.string(),
      /** The snapshot that its sealed files were written for, which a copy shares. */
      label: z.string(),
      files: z.partialRecord(z.enum(SEALED_FILES), FileEntry),
    })
    .optional(),
});
export type Manifest = z.infer<typeof Manifest>;

/** How sums are computed: the daemon does it on another thread. */
export type Sums = Pick<SumsThread, "crcOfFile" | "verifyMemory">;

/** A folder that machines are loaded from. */
export interface Loadable {
  dir: string;
  manifest: Manifest;
}

/** Files that a snapshot of the disk alone does not have. Its `mem` is all zeros and takes no space. */
const OF_MEMORY = new Set<SnapshotFile>(["state", "mem.sealed"]);

/** The names of a snapshot's files. */
export function filesOf({ sealed, memory }: Pick<Manifest, "sealed" | "memory">): readonly SnapshotFile[] {
  const names = sealed ? [...SNAPSHOT_FILES, ...SEALED_FILES] : SNAPSHOT_FILES;
  return memory === false ? names.filter((name) => !OF_MEMORY.has(name)) : names;
}

/** Whether a machine that is started from it boots: it has no memory to load. */
export const boots = ({ memory }: Pick<Manifest, "memory">): boolean => memory === false;

/** The file with the disk of a state that is not sealed, above which a sealed machine has its own. */
export const plainDiskOf = ({ sealed }: Pick<Manifest, "sealed">): "under.qcow2" | "disk.qcow2" =>
  sealed ? "under.qcow2" : "disk.qcow2";

/** The manifest's entries of all files. */
const entriesOf = ({ files, sealed }: Manifest): Partial<Record<SnapshotFile, FileEntry>> => ({
  ...files,
  ...sealed?.files,
});

/** The manifest's entry of a file of the snapshot. */
export function entryOf(manifest: Manifest, name: SnapshotFile): FileEntry {
  const entry = entriesOf(manifest)[name];
  if (!entry) throw new UnusableSnapshot(`its manifest does not describe ${name}`);
  return entry;
}

export const manifestPath = (dir: string) => path.join(dir, "manifest.json");

export const shapeOf = (manifest: Manifest): MachineShape => ({
  accelerator: manifest.accelerator,
  vcpus: manifest.vcpus,
  memMb: manifest.mem_mb,
});

/** How a machine runs that is loaded from it. */
export const isolationOf = ({ accelerator }: Pick<Manifest, "accelerator">) =>
  accelerator === "kvm" ? "kvm" : "emulated";

export const devicesOf = (manifest: Manifest): string[] =>
  manifest.devices ?? unrecordedDevices(shapeOf(manifest));

/** The device arguments for a child's manifest; undefined if the parent's manifest has a hash of other arguments. */
export function knownDevices(manifest: Manifest): string[] | undefined {
  const devices = devicesOf(manifest);
  return manifest.device_arguments === deviceArgumentsHash(manifest, devices) ? devices : undefined;
}

export async function describeFiles(dir: string): Promise<Manifest["files"]> {
  const entries = SNAPSHOT_FILES.map(async (name) => [name, await describeFile(dir, name)] as const);
  return Object.fromEntries(await Promise.all(entries)) as Manifest["files"];
}

/** The manifest's entry of a file. `crcOf`: how to compute a CRC, which the daemon does on another thread. */
export async function describeFile(
  dir: string,
  name: SnapshotFile,
  crcOf: (file: string) => Promise<number> = crcOfFile,
): Promise<FileEntry> {
  const file = path.join(dir, name);
  const { size, mtimeNs, blocks } = await stat(file, { bigint: true });
  return {
    bytes: Number(size),
    mtime: String(mtimeNs),
    blocks: Number(blocks),
    ...(HASHED.has(name) && { sha256: await hashFile(file) }),
    ...(SUMMED.has(name) && { crc32: await crcOf(file) }),
  };
}

/** Publishes a snapshot: its manifest is synced under another name, then renamed, and the rename is synced. */
export async function publishManifest(dir: string, manifest: Manifest): Promise<void> {
  await writeDurably(manifestPath(dir), `${JSON.stringify(manifest, null, 2)}\n`, 0o444);
  await syncPath(path.dirname(dir));
}

export async function readManifest(dir: string): Promise<Manifest> {
  return Manifest.parse(JSON.parse(await readFile(manifestPath(dir), "utf8")));
}

/**
 * Throws UnusableSnapshot if this folder must not be loaded here. Of a saved state's memory only its own pages are
 * read, unless the file has changed: pages shared with the baseline were verified with the baseline.
 */
export async function verifyLoadable(
  { qemu, sums }: { qemu: QemuRoot; sums: SumsThread },
  { dir, manifest }: Loadable,
): Promise<void> {
  requireLoader(qemu, manifest);
  await verifyFiles(sums, { dir, manifest });
}

/** Throws `UnusableSnapshot` if this host has not the QEMU or the devices that the state was made with. */
export function requireLoader(qemu: QemuRoot, manifest: Manifest): void {
  if (rootOf(qemu, manifest.qemu_build) === undefined)
    throw new UnusableSnapshot("it was made by a QEMU build that is not here");
  if (manifest.device_arguments !== deviceArgumentsHash(manifest, devicesOf(manifest)))
    throw new UnusableSnapshot("it was made with other devices or on another CPU");
}

/** Whether a file is missing of a state that is there. */
export function lacksFile({ dir, manifest }: Loadable): boolean {
  return existsSync(dir) && !filesOf(manifest).every((name) => existsSync(path.join(dir, name)));
}

/** The part of `verifyLoadable` about the files alone, which is the same on every host. */
export async function verifyFiles(sums: Sums, { dir, manifest }: Loadable): Promise<void> {
  await Promise.all(filesOf(manifest).map((name) => verifyFile(sums, { dir, manifest }, name)));
}

async function verifyFile(sums: Sums, { dir, manifest }: Loadable, name: SnapshotFile): Promise<void> {
  const expected = entryOf(manifest, name);
  const found = await describeFile(dir, name, (file) => sums.crcOfFile(file));
  if (found.bytes !== expected.bytes)
    throw new UnusableSnapshot(`${name} has ${found.bytes} bytes of ${expected.bytes}`);
  const isUntouched = found.mtime === expected.mtime && found.blocks <= expected.blocks;
  if (name === "mem") {
    const scope = isUntouched && manifest.kind === "snapshot" ? "own" : "all";
    return await sums.verifyMemory(path.join(dir, name), path.join(dir, "mem.sums"), scope);
  }
  const isSame = found.sha256 === expected.sha256 && found.crc32 === expected.crc32;
  if (!isSame || (name === "base.raw" && !isUntouched)) throw new UnusableSnapshot(`${name} is damaged`);
}
