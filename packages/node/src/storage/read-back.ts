/** Reads the files of a snapshot back against its manifest, for a check of everything that is stored. */
import { stat } from "node:fs/promises";
import path from "node:path";
import { extentsOf } from "@vivarium/kit/extents";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { type OnRead, readThrough } from "../disks/read-through.ts";
import { hashFile } from "../host/qemu-root.ts";
import { crcOfFile } from "../snapshots/file-crc.ts";
import { entryOf, filesOf, type Loadable, readManifest, type SnapshotFile } from "../snapshots/manifest.ts";
import { PAGE_BYTES, PageSums, UnusableSnapshot, verifyPages, ZERO_SUM } from "../snapshots/page-sums.ts";

/** Says everything that is wrong with the snapshot in a folder. `disks`: those that were read already, which many share. */
export async function damagesOf(dir: string, disks: Set<string>, onRead: OnRead): Promise<string[]> {
  const manifest = await readManifest(dir).catch(() => undefined);
  if (!manifest) return ["its manifest is missing or damaged"];
  const damages: string[] = [];
  for (const name of filesOf(manifest)) {
    const damage = await damageOf({ dir, manifest }, name, disks, onRead).catch(wordsOf(name));
    if (damage !== undefined) damages.push(damage);
  }
  return damages;
}

const wordsOf = (name: string) => (error: unknown) => {
  if (error instanceof UnusableSnapshot) return error.message;
  return hasCode(error, "ENOENT") ? `${name} is missing` : `${name}: ${messageOf(error)}`;
};

async function damageOf(
  { dir, manifest }: Loadable,
  name: SnapshotFile,
  disks: Set<string>,
  onRead: OnRead,
): Promise<string | undefined> {
  const file = path.join(dir, name);
  const expected = entryOf(manifest, name);
  const found = await stat(file, { bigint: true });
  if (Number(found.size) !== expected.bytes) return `${name} has ${found.size} bytes of ${expected.bytes}`;
  if (name === "mem") return await readMemory(dir, onRead);
  if (expected.sha256 !== undefined)
    return (await hashFile(file, onRead)) === expected.sha256 ? undefined : `${name} is damaged`;
  if (expected.crc32 !== undefined)
    return (await crcOfFile(file, onRead)) === expected.crc32 ? undefined : `${name} is damaged`;
  const isUntouched = String(found.mtimeNs) === expected.mtime && Number(found.blocks) <= expected.blocks;
  if (!isUntouched) return `${name} was changed`;
  // It has no sum: that it can be read is all that can be said.
  const inode = `${found.dev}:${found.ino}`;
  if (!disks.has(inode)) await readThrough(file, onRead);
  disks.add(inode);
  return undefined;
}

/** Pages in holes are zeros without being read, so only those that should be something else are. */
async function readMemory(dir: string, onRead: OnRead): Promise<undefined> {
  const file = path.join(dir, "mem");
  const table = await PageSums.read(path.join(dir, "mem.sums"));
  const extents = await extentsOf(file);
  const held = new Uint8Array(table.sums.length);
  for (const { start, bytes } of extents ?? [{ start: 0, bytes: held.length * PAGE_BYTES }])
    held.fill(1, Math.floor(start / PAGE_BYTES), Math.ceil((start + bytes) / PAGE_BYTES));
  const isWanted = (page: number) => held[page] === 1 || table.sums[page] !== ZERO_SUM;
  await verifyPages(file, table, { isWanted, onRead });
}
