/**
 * Named places at which a test kills this process: once, the first time it gets there. A file remembers that it
 * happened, so that the process that is started again gets through.
 */
import { openSync } from "node:fs";
import path from "node:path";

let armed: { name: string; dir: string } | undefined;

/** `dir` keeps the memory of the crash. Called by main.ts with what the configuration says (`VIV_CRASH_AT`). */
export function armCrashPoint(name: string | undefined, dir: string): void {
  armed = name === undefined ? undefined : { name, dir };
}

/** Does nothing unless this place is armed. */
export function crashPoint(name: string): void {
  if (armed?.name !== name || !isFirstHit(armed)) return;
  process.kill(process.pid, "SIGKILL");
}

function isFirstHit({ name, dir }: { name: string; dir: string }): boolean {
  try {
    openSync(path.join(dir, `crashed-at-${name}`), "wx");
    return true;
  } catch {
    return false;
  }
}
