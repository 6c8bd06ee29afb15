/**
 * `viv continue-update`: completes or reverts an update of a unit whose process has died. Runs as a unit of its own,
 * beside an update and at each start of a service that has an unfinished one.
 */
import { DEFAULT_NAME, parseUnitName } from "../install/installed.ts";
import { requireRootFor } from "../install/systemd.ts";
import { settleUpdate } from "../update/settle.ts";
import { takeLockOfDead } from "../update/update-lock.ts";
import { type Call, Verb } from "./verb.ts";

export function continueUpdateCommand(): Verb {
  return new Verb("continue-update", ["viv continue-update --name vivarium"])
    .summary("finish an update that was interrupted")
    .description("Wait until no viv install is at work on a unit, and finish the update that it has left.")
    .option("--name <name>", "name of the unit", parseUnitName, DEFAULT_NAME)
    .does(continueUnit);
}

async function continueUnit(call: Call<{ name: string }>): Promise<void> {
  requireRootFor("continue-update");
  const { name } = call.options;
  const lock = await takeLockOfDead(name);
  if (!lock) return;
  try {
    await settleUpdate(call, name);
  } finally {
    await lock.release();
  }
}
