import { readFile } from "node:fs/promises";
import { buffer } from "node:stream/consumers";
import { messageOf } from "@vivarium/kit/unknown-error";
import { UsageError } from "../cli-error.ts";

/** Text of a file, or of the standard input for `-`. */
export async function readText(file: string): Promise<string> {
  return (await readBytes(file)).toString();
}

export async function readBytes(file: string): Promise<Buffer> {
  if (file === "-") return await buffer(process.stdin);
  try {
    return await readFile(file);
  } catch (cause) {
    throw new UsageError(`cannot read ${file}: ${messageOf(cause)}`, undefined, cause);
  }
}
