import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";

/** Text of a file, or of the standard input for `-`. */
export async function readText(file: string): Promise<string> {
  if (file === "-") return text(process.stdin);
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new CliError(`cannot read ${file}: ${messageOf(cause)}`, {
      exitCode: EXIT.usage,
      cause,
    });
  }
}
