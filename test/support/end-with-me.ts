/** Ends a service of tests when the process that started it ends, even if that was killed. */
import { spawn } from "node:child_process";
import { join } from "node:path";

/** Waits until its input ends, then runs its arguments, in a process that survives whatever kills the parent. */
const WATCH = 'read -r _; exec "$@"';

export function endWithMe(pid: number, dataDir: string): void {
  const clearAway = [process.execPath, join(import.meta.dirname, "clear-away.ts"), String(pid), dataDir];
  const watch = spawn("sh", ["-c", WATCH, "watch", ...clearAway], {
    stdio: ["pipe", "ignore", "ignore"],
    // A process group of its own, since the parent's whole group may be killed.
    detached: true,
  });
  watch.unref();
}
