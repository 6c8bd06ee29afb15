/** Sums of all files below some paths. Names of one file have one sum, which is computed once. */
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, open, readdir, readlink } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import type { FileSum } from "./manifest.ts";

const CHUNK_BYTES = 1024 * 1024;
/** Larger files are read only where they hold data: disks and memory are mostly holes. */
const WHOLE_LIMIT_BYTES = 64 * CHUNK_BYTES;
const ZEROS = Buffer.alloc(CHUNK_BYTES);

/** By path relative to `root`. Directories have no entry; anything else than files and links is an error. */
export async function sumsBelow(root: string, names: readonly string[]): Promise<Record<string, FileSum>> {
  const sums: Record<string, FileSum> = {};
  const known = new Map<string, FileSum>();
  for await (const name of filesBelow(root, names)) {
    const file = path.join(root, name);
    const found = await lstat(file, { bigint: true });
    if (found.isSymbolicLink()) {
      sums[name] = { link: await readlink(file) };
      continue;
    }
    if (!found.isFile()) throw new Error(`${file} is neither a file nor a directory nor a link`);
    const inode = `${found.dev}:${found.ino}`;
    const sum = known.get(inode) ?? (await sumOf(file, Number(found.size)));
    known.set(inode, sum);
    sums[name] = sum;
  }
  return sums;
}

async function* filesBelow(root: string, names: readonly string[]): AsyncGenerator<string> {
  for (const name of names) {
    const found = await lstat(path.join(root, name));
    if (!found.isDirectory()) {
      yield name;
      continue;
    }
    const inside = (await readdir(path.join(root, name))).toSorted();
    yield* filesBelow(
      root,
      inside.map((entry) => `${name}/${entry}`),
    );
  }
}

async function sumOf(file: string, bytes: number): Promise<FileSum> {
  if (bytes > WHOLE_LIMIT_BYTES) return { bytes, data_sha256: await dataSha256Of(file, bytes) };
  const hash = createHash("sha256");
  for await (const chunk of createReadStream(file, { highWaterMark: CHUNK_BYTES })) hash.update(chunk);
  return { bytes, sha256: hash.digest("hex") };
}

/** The sum of each chunk that has more than zeros, after its offset. It is the same wherever the file has its holes. */
async function dataSha256Of(file: string, bytes: number): Promise<string> {
  const hash = createHash("sha256");
  const chunk = Buffer.alloc(CHUNK_BYTES);
  const handle = await open(file, "r");
  try {
    let next = 0;
    for (const { start, length } of await dataExtentsOf(file, bytes)) {
      const first = Math.max(next, start - (start % CHUNK_BYTES));
      for (next = first; next < start + length; next += CHUNK_BYTES) {
        const wanted = Math.min(CHUNK_BYTES, bytes - next);
        const { bytesRead } = await handle.read(chunk, 0, wanted, next);
        if (bytesRead !== wanted) throw new Error(`${file} became shorter while it was read`);
        const content = chunk.subarray(0, wanted);
        if (!content.equals(ZEROS.subarray(0, wanted))) hash.update(`${next} `).update(content);
      }
    }
  } finally {
    await handle.close();
  }
  return hash.digest("hex");
}

/** The parts of a file that are no holes, in their order; all of it where they cannot be listed. */
async function dataExtentsOf(file: string, bytes: number): Promise<{ start: number; length: number }[]> {
  const { code, stdout } = await runHostCommand("qemu-img", [
    ...["map", "--output=json", "--force-share", "--image-opts"],
    `driver=raw,file.driver=file,file.filename=${file.replaceAll(",", ",,")}`,
  ]);
  if (code !== 0) return [{ start: 0, length: bytes }];
  const extents = JSON.parse(stdout) as { start: number; length: number; data: boolean }[];
  return extents.filter(({ data }) => data);
}
