import { type SpawnOptions, spawn } from "node:child_process";
import { constants } from "node:os";
import { CliError } from "../cli-error.ts";

const FORWARDED = ["SIGTERM", "SIGHUP"] as const;

/** Runs a program on this terminal and resolves to its exit code. Ctrl-C is left to the program. */
export async function runForeground(
  command: readonly string[],
  { missing, ...options }: SpawnOptions & { missing: string },
): Promise<number> {
  const [program = "", ...args] = command;
  const child = spawn(program, args, { ...options, stdio: "inherit" });
  const ignore = () => {};
  const forward = (signal: NodeJS.Signals) => void child.kill(signal);
  process.on("SIGINT", ignore);
  for (const signal of FORWARDED) process.on(signal, forward);
  try {
    return await new Promise((resolve, reject) => {
      child.once("error", (cause) =>
        reject(new CliError(`cannot run ${program}: ${cause.message}`, { hint: missing, cause })),
      );
      child.once("close", (code, signal) => resolve(code ?? 128 + (signal ? constants.signals[signal] : 0)));
    });
  } finally {
    process.off("SIGINT", ignore);
    for (const signal of FORWARDED) process.off(signal, forward);
  }
}
