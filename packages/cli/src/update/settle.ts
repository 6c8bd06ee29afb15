/** Finishes an update whose process has died. The caller has the update's lock. */
import type { Context } from "../context.ts";
import { readUnit } from "../install/unit-text.ts";
import { copiesDirOf, removeOthers } from "./copies.ts";
import { journalFileOf, readJournal } from "./journal.ts";
import { continueUpdate, type Ended } from "./run-update.ts";
import { updateDepsOf } from "./service-update.ts";
import { configOfUnit } from "./unit-config.ts";

/** Undefined where no update is unfinished. */
export async function settleUpdate(context: Context, unit: string): Promise<Ended | undefined> {
  const journal = await readJournal(journalFileOf(copiesDirOf(unit)));
  if (!journal) return undefined;
  const { dataDir, since, after } = journal;
  // The rows were saved from the database of the new version's settings.
  const config = configOfUnit(context.config, { dataDir, settings: after.settings });
  const here = { ...context, config };
  const ended = await continueUpdate(updateDepsOf(here, { unit, since }), journal);
  if (ended.outcome === "updated")
    await removeOthers(copiesDirOf(unit), [after.copy, readUnit(journal.before.unit)?.copy]);
  context.terminal.note(
    {
      updated: `viv: ${unit}.service serves ${after.version}`,
      reverted: `viv: ${unit}.service serves the version of before`,
      stuck: `viv: ${unit}.service does not serve: ${ended.reason}`,
    }[ended.outcome],
  );
  return ended;
}
