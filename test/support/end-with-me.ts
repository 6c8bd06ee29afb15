/** Ends a service of tests together with the process that started it, also when that process is killed. */
import { spawn } from "node:child_process";
import { join } from "node:path";

/** Waits for the end of its input; the event that ends the other process may kill this one at once. */
const WATCH = 'read -r _; exec "$@"';

export function endWithMe(pid: number, dataDir: string): void {
  const clearAway = [process.execPath, join(import.meta.dirname, "clear-away.ts"), String(pid), dataDir];
  const watch = spawn("sh", ["-c", WATCH, "watch", ...clearAway], {
    stdio: ["pipe", "ignore", "ignore"],
    // A group of its own: the event that ends this process may end its whole group.
    detached: true,
  });
  watch.unref();
}
