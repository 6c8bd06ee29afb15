/** Runs a host tool to its end. Failures carry the tool's own words, for the operator's log. */
import { execa } from "execa";

export async function run(file: string, args: string[], options: { input?: string } = {}): Promise<string> {
  const result = await execa(file, args, {
    input: options.input ?? "",
    reject: false,
    stripFinalNewline: true,
    timeout: 60_000,
    maxBuffer: 4 * 1024 * 1024,
  });
  if (result.failed) {
    throw new Error(
      `${file} ${args.join(" ")} failed: ${result.stderr || result.shortMessage || "no output"}`,
    );
  }
  return result.stdout;
}
