/**
 * Named places at which a test kills this process: once each, the first time it gets there. A file remembers that it
 * happened, so that the process that is started again gets through, to the next one.
 */
import { openSync } from "node:fs";
import path from "node:path";

let armed: { names: string[]; dir: string } | undefined;

/**
 * `names`: one, or several with commas between. `dir` keeps the memory of the crashes. Called by main.ts with what the
 * configuration says (`VIV_CRASH_AT`).
 */
export function armCrashPoint(names: string | undefined, dir: string): void {
  armed = names === undefined ? undefined : { names: names.split(","), dir };
}

/** Does nothing unless this place is armed. */
export function crashPoint(name: string): void {
  if (!armed?.names.includes(name) || !isFirstHit(name, armed.dir)) return;
  process.kill(process.pid, "SIGKILL");
}

function isFirstHit(name: string, dir: string): boolean {
  try {
    openSync(path.join(dir, `crashed-at-${name}`), "wx");
    return true;
  } catch {
    return false;
  }
}
