/** `viv ready`: waits until the service of a data directory answers. The unit's start ends with it. */
import { existsSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";
import { CliError } from "../cli-error.ts";
import { connectWithoutKey } from "../connect.ts";
import { startDeadline } from "../service/start-deadline.ts";
import { WAIT_FOR_START_MS } from "../service/start-limit.ts";
import { askHealth } from "../service/wait-for-health.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findService } from "../supervisor/lock.ts";
import { type Call, Verb } from "./verb.ts";

const POLL_MS = 200;

export function readyCommand(): Verb {
  return new Verb("ready", ["viv ready --data-dir /var/lib/vivarium"])
    .summary("wait until the service answers")
    .description(
      "Wait until the service of a data directory answers, at most six minutes, without those of a backup or restore before.",
    )
    .option("--data-dir <dir>", "data directory of the service (default: $VIV_DATA_DIR or /var/lib/vivarium)")
    .does(ready);
}

async function ready({ config }: Call): Promise<void> {
  const { lockFile } = layoutOf(config.dataDir);
  const isOver = startDeadline(lockFile);
  while (!(await isOver())) {
    if (hasEnded(config.mainPid))
      throw new CliError(`the service of ${config.dataDir} ended before it answered; its log has the reason`);
    const holder = await findService(lockFile);
    if (holder && (await askHealth(connectWithoutKey({ ...config, url: holder.url })))) return;
    await sleep(POLL_MS);
  }
  throw new CliError(
    `the service of ${config.dataDir} does not answer after ${WAIT_FOR_START_MS / 60_000} minutes`,
  );
}

/** systemd names the unit's main process, and waits for this command even when that one is gone. */
function hasEnded(mainPid: number | undefined): boolean {
  return mainPid !== undefined && !existsSync(`/proc/${mainPid}`);
}
