/** Limits the size of the service's log files. */
import { copyFile, readdir, stat, truncate } from "node:fs/promises";
import path from "node:path";

const CAP_BYTES = 16 * 1024 * 1024;
const TICK_MS = 10_000;

/** Checks every 10 s whether a log is over 16 MiB; then its content moves to `NAME.log.1`, over the one before. */
export function startLogCap(logDir: string): () => void {
  const timer = setInterval(() => void capLogs(logDir).catch(() => {}), TICK_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Copies and truncates instead of renaming, since the writers keep their files open for appending. */
export async function capLogs(logDir: string, capBytes = CAP_BYTES): Promise<void> {
  for (const name of await readdir(logDir)) {
    if (!name.endsWith(".log")) continue;
    const file = path.join(logDir, name);
    if ((await stat(file)).size <= capBytes) continue;
    await copyFile(file, `${file}.1`);
    await truncate(file, 0);
  }
}
