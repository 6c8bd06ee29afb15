/** Runs `viv` as its users do: as a process, with the address and key of the running service. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { sharedService } from "./shared-service.ts";

const MAIN = join(import.meta.dirname, "../../packages/cli/src/main.ts");

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

/** Environment of `viv` for the running service. */
export function vivEnvironment(): Record<string, string> {
  const { url, apiKey } = sharedService();
  return { PATH: process.env.PATH ?? "", HOME: tmpdir(), VIV_URL: url, VIV_API_KEY: apiKey };
}

/** Command of `viv` for a shell. */
export const VIV_COMMAND = `${process.execPath} ${MAIN}`;

export function startViv(...argv: string[]): ChildProcess & { ended: Promise<Ended> } {
  return startVivWith({}, ...argv);
}

/** Starts `viv` with a standard input, which is empty by default, or with more environment variables. */
export function startVivWith(
  { input, env = {}, cwd }: { input?: Readable; env?: Record<string, string>; cwd?: string },
  ...argv: string[]
): ChildProcess & { ended: Promise<Ended> } {
  const child = spawn(process.execPath, [MAIN, ...argv], {
    env: { ...vivEnvironment(), ...env },
    cwd,
    stdio: ["pipe", "pipe", "pipe"],
  });
  // EPIPE: a command may end before it has read all input.
  child.stdin.on("error", () => {});
  if (input === undefined) child.stdin.end();
  else input.pipe(child.stdin);
  const ended = Promise.all([once(child, "close"), text(child.stdout), text(child.stderr)]);
  return Object.assign(child, {
    ended: ended.then(([[code], out, err]): Ended => ({ code: code as number | null, out, err })),
  });
}

/** Runs `viv` and returns its standard output; throws if it fails. */
export async function viv(...argv: string[]): Promise<string> {
  const { code, out, err } = await startViv(...argv).ended;
  if (code !== 0) throw new Error(`viv ${argv.join(" ")} ended with ${code}: ${err}${out}`);
  return out.trim();
}
