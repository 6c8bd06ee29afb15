/** Runs a host tool to its end. The error of a failure carries the tool's own words, for the operator's log. */
import { runHostCommand } from "@vivarium/kit/host-command";

export async function run(file: string, args: string[], options: { input?: string } = {}): Promise<string> {
  const { code, stdout, stderr } = await runHostCommand(file, args, options);
  if (code === 0) return stdout.replace(/\n$/, "");
  throw new Error(`${file} ${args.join(" ")} failed: ${stderr.trim() || `exit code ${code}`}`);
}
