/** Computes the CRC of a whole file. */
import { createReadStream } from "node:fs";
import { crc32 } from "node:zlib";
import { MIB } from "@vivarium/kit/sizes";

/** `onRead`: called with the bytes of each read, before the next one. */
export async function crcOfFile(
  file: string,
  onRead: (bytes: number) => Promise<void> = async () => {},
): Promise<number> {
  let sum = 0;
  for await (const chunk of createReadStream(file, { highWaterMark: MIB })) {
    sum = crc32(chunk as Buffer, sum);
    await onRead((chunk as Buffer).length);
  }
  return sum;
}
