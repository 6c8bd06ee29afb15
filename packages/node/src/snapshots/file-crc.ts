/** A CRC of a whole file, of whatever size. */
import { createReadStream } from "node:fs";
import { crc32 } from "node:zlib";

export async function crcOfFile(file: string): Promise<number> {
  let sum = 0;
  for await (const chunk of createReadStream(file, { highWaterMark: 1024 * 1024 }))
    sum = crc32(chunk as Buffer, sum);
  return sum;
}
