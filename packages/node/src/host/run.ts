/** Runs a host tool to its end. A failure throws with its standard error, unless that matches `ignored`. */
import { runHostCommand } from "@vivarium/kit/host-command";

export async function run(
  file: string,
  args: string[],
  { input = "", ignored }: { input?: string; ignored?: RegExp } = {},
): Promise<string> {
  const { code, stdout, stderr } = await runHostCommand(file, args, { input });
  if (code === 0 || ignored?.test(stderr)) return stdout.replace(/\n$/, "");
  throw new Error(`${file} ${args.join(" ")} failed: ${stderr.trim() || `exit code ${code}`}`);
}
