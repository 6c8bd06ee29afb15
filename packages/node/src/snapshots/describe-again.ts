/**
 * Makes a snapshot's manifest fit files that were written anew with the same bytes, as those that were fetched from an archive. A
 * manifest has the times and blocks of its files, by which a load knows that nobody has written to them.
 */
import path from "node:path";
import { writeDurably } from "@vivarium/kit/durable-file";
import {
  describeFile,
  entryOf,
  filesOf,
  Manifest,
  manifestPath,
  readManifest,
  type SnapshotFile,
  type Sums,
} from "./manifest.ts";
import { UnusableSnapshot } from "./page-sums.ts";

/**
 * Throws UnusableSnapshot unless all of the memory and of the files with a sum is what the manifest says. The folder is not
 * published yet. The base disk has no sum: the caller has linked it, or compared its bytes.
 */
export async function describeAgain(dir: string, sums: Sums): Promise<Manifest> {
  const manifest = await readManifest(dir);
  const described = filesOf(manifest).map(
    async (name) => [name, await sameFile(dir, manifest, name, sums)] as const,
  );
  const entries = new Map(await Promise.all(described));
  await sums.verifyMemory(path.join(dir, "mem"), path.join(dir, "mem.sums"), "all");
  const among = <T extends object>(files: T) =>
    Object.fromEntries(Object.keys(files).map((name) => [name, entries.get(name as SnapshotFile)]));
  const again = Manifest.parse({
    ...manifest,
    files: among(manifest.files),
    ...(manifest.sealed && { sealed: { ...manifest.sealed, files: among(manifest.sealed.files) } }),
  });
  await writeDurably(manifestPath(dir), `${JSON.stringify(again, null, 2)}\n`, 0o444);
  return again;
}

async function sameFile(dir: string, manifest: Manifest, name: SnapshotFile, sums: Pick<Sums, "crcOfFile">) {
  const found = await describeFile(dir, name, (file) => sums.crcOfFile(file));
  const { bytes, sha256, crc32 } = entryOf(manifest, name);
  if (found.bytes !== bytes || found.sha256 !== sha256 || found.crc32 !== crc32)
    throw new UnusableSnapshot(`${name} is not the file that was saved`);
  return found;
}
