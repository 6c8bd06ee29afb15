/** Servers that others have written, as processes of a test. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect, type NetConnectOpts } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { sleep } from "../src/clock.ts";

const BETWEEN_TRIES_MS = 50;

/** Path of the program that `scripts/fetch-…` has put into the cache. Throws if it is missing. */
export function fetchedProgram(name: string, script: string): string {
  const { VIV_CACHE_DIR, XDG_CACHE_HOME } = process.env;
  const cache = VIV_CACHE_DIR ?? join(XDG_CACHE_HOME ?? join(homedir(), ".cache"), "vivarium");
  const program = join(cache, "test-tools", name, name);
  if (!existsSync(program)) throw new Error(`${program} is missing; run ${script}`);
  return program;
}

/** Waits until the server takes connections. Throws with its log if it has ended. */
export async function untilAnswering(
  child: ChildProcess,
  at: NetConnectOpts,
  log: () => string,
): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the server ended: ${log()}`);
    const socket = connect(at);
    const isAnswering = await Promise.race([
      once(socket, "connect").then(() => true),
      new Promise<false>((resolve) => socket.once("error", () => resolve(false))),
    ]);
    socket.destroy();
    if (isAnswering) return;
    await sleep(BETWEEN_TRIES_MS);
  }
}

/** Kills it, and waits for its end; does nothing if it has ended. */
export async function endServer(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
