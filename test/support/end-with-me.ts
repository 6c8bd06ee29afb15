/** A service of tests ends with the process that started it, also where that is killed and stops nothing any more. */
import { spawn } from "node:child_process";

/** Waits for the end of its input; then the process is ended, if it is still the one whose arguments name the folder. */
const WATCH = 'read -r _; grep -qaF -- "$2" "/proc/$1/cmdline" 2>/dev/null && kill -TERM "$1"';

export function endWithMe(pid: number, dataDir: string): void {
  const watch = spawn("sh", ["-c", WATCH, "watch", String(pid), dataDir], {
    stdio: ["pipe", "ignore", "ignore"],
    // A group of its own: what ends this process may end its whole group.
    detached: true,
  });
  watch.unref();
}
