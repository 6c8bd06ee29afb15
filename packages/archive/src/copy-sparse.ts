/** Copies a file with its holes: with shared blocks if the file system can, else block by block. */
import { constants, copyFile, open } from "node:fs/promises";
import { extentsOf } from "@vivarium/kit/extents";
import { MIB } from "@vivarium/kit/sizes";
import { hasCode } from "@vivarium/kit/unknown-error";
import { writeAll } from "./write-all.ts";

const OWN_MODE = 0o600;
/** Errors of a file system that cannot clone. */
const NOT_CLONED = ["ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EXDEV", "EINVAL", "ENOTTY"];

/** The copy can be written by its owner alone. */
export async function copySparse(source: string, target: string): Promise<void> {
  try {
    await copyFile(source, target, constants.COPYFILE_FICLONE_FORCE | constants.COPYFILE_EXCL);
  } catch (error) {
    if (!hasCode(error, ...NOT_CLONED)) throw error;
    await copyData(source, target);
  }
  await using handle = await open(target, "r");
  await handle.chmod(OWN_MODE);
}

async function copyData(source: string, target: string): Promise<void> {
  await using from = await open(source, "r");
  await using to = await open(target, "wx", OWN_MODE);
  const { size } = await from.stat();
  await to.truncate(size);
  const buffer = Buffer.allocUnsafe(MIB);
  for (const { start, bytes } of (await extentsOf(source, { sync: true })) ?? [{ start: 0, bytes: size }])
    for (let at = start; at < Math.min(start + bytes, size); ) {
      const { bytesRead } = await from.read(buffer, 0, Math.min(MIB, start + bytes - at), at);
      if (bytesRead === 0) break;
      await writeAll(to, buffer.subarray(0, bytesRead), at);
      at += bytesRead;
    }
}
