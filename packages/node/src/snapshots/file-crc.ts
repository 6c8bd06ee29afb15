/** Computes the CRC of a whole file. */
import { createReadStream } from "node:fs";
import { crc32 } from "node:zlib";
import { MIB } from "@vivarium/kit/sizes";

export async function crcOfFile(file: string): Promise<number> {
  let sum = 0;
  for await (const chunk of createReadStream(file, { highWaterMark: MIB })) sum = crc32(chunk as Buffer, sum);
  return sum;
}
