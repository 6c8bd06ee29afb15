/**
 * Named points at which a test kills this process, each the first time the process reaches it. A file records each
 * kill, so that the restarted process passes that point and reaches the next one.
 */
import { openSync } from "node:fs";
import path from "node:path";

let armed: { names: string[]; dir: string } | undefined;

/** `names`: crash points separated by commas (`VIV_CRASH_AT`). `dir`: directory for the records of the kills. */
export function armCrashPoint(names: string | undefined, dir: string): void {
  armed = names === undefined ? undefined : { names: names.split(","), dir };
}

/** Does nothing unless this point is armed. */
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
