import { type ExecFileException, execFile } from "node:child_process";

export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs a host command to its end. A missing program is exit code 127, as in a shell; a killed one is 137. */
export function runHostCommand(
  command: string,
  args: string[],
  options: { input?: string; timeoutMs?: number; env?: Record<string, string>; cwd?: string } = {},
): Promise<CommandResult> {
  const { input = "", timeoutMs = 60_000, env, cwd } = options;
  const limits = { timeout: timeoutMs, killSignal: "SIGKILL", maxBuffer: 16 * 1024 * 1024 } as const;
  return new Promise((resolve) => {
    const child = execFile(command, args, { ...limits, env, cwd }, (error, stdout, stderr) => {
      resolve({ code: codeOf(error), stdout, stderr });
    });
    child.stdin?.on("error", () => {});
    child.stdin?.end(input);
  });
}

function codeOf(error: ExecFileException | null): number {
  if (error === null) return 0;
  if (error.signal) return 137;
  return typeof error.code === "number" ? error.code : 127;
}
