/** Reads what a file holds, to find out whether it can be read. Holes are left out. */
import { open } from "node:fs/promises";
import { extentsOf } from "@vivarium/kit/extents";
import { MIB } from "@vivarium/kit/sizes";

/** Called with the bytes of each read, before the next one. */
export type OnRead = (bytes: number) => Promise<void>;

export async function readThrough(file: string, onRead: OnRead): Promise<void> {
  const handle = await open(file, "r");
  try {
    const { size } = await handle.stat();
    const buffer = Buffer.allocUnsafe(MIB);
    for (const { start, bytes } of (await extentsOf(file)) ?? [{ start: 0, bytes: size }])
      for (let at = start; at < Math.min(start + bytes, size); ) {
        const wanted = Math.min(MIB, start + bytes - at);
        const { bytesRead } = await handle.read(buffer, 0, wanted, at);
        // It has become shorter.
        if (bytesRead === 0) return;
        at += bytesRead;
        await onRead(bytesRead);
      }
  } finally {
    await handle.close();
  }
}
