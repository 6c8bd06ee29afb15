import { readFile, writeFile } from "node:fs/promises";
import path from "node:path";

/** Writes a generated file, or with --check fails when the file differs. */
export async function writeOrCheck(file: string, content: string, command: string): Promise<void> {
  const name = path.relative(process.cwd(), file);
  if (!process.argv.includes("--check")) {
    await writeFile(file, content);
    console.log(`${name} written`);
    return;
  }
  const current = await readFile(file, "utf8").catch(() => "");
  if (current === content) return;
  console.error(`${name} is not what the sources amount to; run \`${command}\` and commit the result`);
  process.exitCode = 1;
}
