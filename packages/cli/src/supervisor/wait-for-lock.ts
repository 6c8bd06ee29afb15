/**
 * Takes the lock of a data directory for a service. A command that has it, as a backup of a stopped service at boot, is
 * waited for: a start that is refused for "another service" is not tried again by the unit.
 */
import { sleep } from "@vivarium/kit/clock";
import { CliError } from "../cli-error.ts";
import { type Holder, type Lock, takeLock } from "./lock.ts";

/** Then the start fails with 1, after which the unit tries again. */
export const COMMAND_LIMIT_MS = 600_000;
const POLL_MS = 200;

interface Waiting {
  dataDir: string;
  lockFile: string;
  url: string;
  note: (line: string) => void;
  limitMs?: number;
}

/** Returns the lock, or the service that has it. Throws if a command still has it after the limit. */
export async function takeLockAfterCommands({
  dataDir,
  lockFile,
  url,
  note,
  limitMs = COMMAND_LIMIT_MS,
}: Waiting): Promise<Lock | { holder: Holder }> {
  const deadline = performance.now() + limitMs;
  let noted: number | undefined;
  for (;;) {
    const lock = await takeLock(lockFile, url);
    if ("release" in lock || lock.holder.command === undefined) return lock;
    const { command, pid } = lock.holder;
    if (performance.now() >= deadline) {
      throw new CliError(
        `${command} (pid ${pid}) is still at work on ${dataDir} after ${limitMs / 60_000} minutes`,
        { hint: "The service starts once that process has ended." },
      );
    }
    if (noted !== pid)
      note(
        `viv: ${command} (pid ${pid}) is at work on ${dataDir}: the service starts when it has ended, waiting up to ${limitMs / 60_000} minutes`,
      );
    noted = pid;
    await sleep(POLL_MS);
  }
}
