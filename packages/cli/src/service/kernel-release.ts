/** The release of a Linux kernel image, as its own header gives it (Documentation/arch/x86/boot.rst). */
import { open } from "node:fs/promises";

const MAGIC = { at: 0x202, text: "HdrS" };
/** Where the header has the place of the version, counted from 0x200. */
const VERSION_AT = 0x20e;
const BASE = 0x200;
const VERSION_BYTES = 256;

/** Undefined without such a file, or for another format. */
export async function readKernelRelease(file: string): Promise<string | undefined> {
  try {
    await using handle = await open(file, "r");
    const read = async (at: number, bytes: number) => {
      const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, at);
      return buffer.subarray(0, bytesRead);
    };
    if ((await read(MAGIC.at, 4)).toString("latin1") !== MAGIC.text) return undefined;
    const at = (await read(VERSION_AT, 2)).readUInt16LE() + BASE;
    return /^[\w.+~-]+/.exec((await read(at, VERSION_BYTES)).toString("latin1"))?.[0];
  } catch {
    return undefined;
  }
}
