/** The command line as its users have it: a process of its own, with the running service's address and key. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { inject } from "vitest";

const MAIN = join(import.meta.dirname, "../../packages/cli/src/main.ts");

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

export function startViv(...argv: string[]): ChildProcess & { ended: Promise<Ended> } {
  const { url, apiKey } = inject("service");
  const env = { PATH: process.env.PATH, VIV_URL: url, VIV_API_KEY: apiKey };
  const child = spawn(process.execPath, [MAIN, ...argv], { env, stdio: ["ignore", "pipe", "pipe"] });
  const ended = Promise.all([once(child, "close"), text(child.stdout), text(child.stderr)]);
  return Object.assign(child, {
    ended: ended.then(([[code], out, err]): Ended => ({ code: code as number | null, out, err })),
  });
}

/** Standard output of a command that must succeed. */
export async function viv(...argv: string[]): Promise<string> {
  const { code, out, err } = await startViv(...argv).ended;
  if (code !== 0) throw new Error(`viv ${argv.join(" ")} ended with ${code}: ${err}${out}`);
  return out.trim();
}
