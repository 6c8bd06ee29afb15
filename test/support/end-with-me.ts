/** A service of tests ends with the process that started it, also where that is killed and stops nothing any more. */
import { spawn } from "node:child_process";
import { join } from "node:path";

/** Waits for the end of its input; what ends the process that holds the other end may kill it at once. */
const WATCH = 'read -r _; exec "$@"';

export function endWithMe(pid: number, dataDir: string): void {
  const clearAway = [process.execPath, join(import.meta.dirname, "clear-away.ts"), String(pid), dataDir];
  const watch = spawn("sh", ["-c", WATCH, "watch", ...clearAway], {
    stdio: ["pipe", "ignore", "ignore"],
    // A group of its own: what ends this process may end its whole group.
    detached: true,
  });
  watch.unref();
}
