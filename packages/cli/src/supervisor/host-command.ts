import { execFile } from "node:child_process";

export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs a host command to its end. A missing program is exit code 127, as in a shell. */
export function runHostCommand(
  command: string,
  args: string[],
  options: { input?: string; timeoutMs?: number; env?: Record<string, string>; cwd?: string } = {},
): Promise<CommandResult> {
  return new Promise((resolve) => {
    const child = execFile(
      command,
      args,
      {
        timeout: options.timeoutMs ?? 60_000,
        killSignal: "SIGKILL",
        maxBuffer: 16 * 1024 * 1024,
        env: options.env,
        cwd: options.cwd,
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === "number" ? error.code : 127;
        resolve({ code: error && error.code === undefined ? 137 : code, stdout, stderr });
      },
    );
    child.stdin?.on("error", () => {});
    child.stdin?.end(options.input ?? "");
  });
}
