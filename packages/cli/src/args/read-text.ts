import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { messageOf } from "@vivarium/kit/unknown-error";
import { UsageError } from "../cli-error.ts";

/** Text of a file, or of the standard input for `-`. */
export async function readText(file: string): Promise<string> {
  if (file === "-") return text(process.stdin);
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new UsageError(`cannot read ${file}: ${messageOf(cause)}`, undefined, cause);
  }
}
