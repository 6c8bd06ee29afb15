import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";

/** Entries of a policy from a file, one a line; empty lines and comments are passed over. */
export async function readEntries(file: string): Promise<string[]> {
  return (await readText(file))
    .split("\n")
    .map((line) => line.replace(/#.*/, "").trim())
    .filter((line) => line !== "");
}

async function readText(file: string): Promise<string> {
  if (file === "-") return text(process.stdin);
  try {
    return await readFile(file, "utf8");
  } catch (cause) {
    throw new CliError(`cannot read ${file}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      exitCode: EXIT.usage,
      cause,
    });
  }
}
