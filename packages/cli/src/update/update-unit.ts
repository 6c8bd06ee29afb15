/** Updates a unit that is up to another copy. If the copy does not serve, the version of before does again. */
import { readFile } from "node:fs/promises";
import { CliError } from "../cli-error.ts";
import type { Context } from "../context.ts";
import { placesOf } from "../install/installed.ts";
import { copiesDirOf, type MadeCopy, removeCopy } from "./copies.ts";
import { type Journal, journalFileOf, readJournal, type UnitFiles } from "./journal.ts";
import { prepareUpdate } from "./prepare.ts";
import { runUpdate } from "./run-update.ts";
import { startWatcher, updateDepsOf } from "./service-update.ts";

/** `answers`: whether the version of before does. */
export async function updateUnit(
  { config: caller, terminal }: Context,
  unit: string,
  { copy, after, answers }: { copy: MadeCopy; after: UnitFiles & { settings: string }; answers: boolean },
): Promise<void> {
  const { unitFile, settingsFile } = placesOf(unit);
  const now = {
    unit: await readFile(unitFile, "utf8"),
    settings: await readFile(settingsFile, "utf8").catch(() => undefined),
  };
  const left = await readJournal(journalFileOf(copiesDirOf(unit)));
  const found = { settings: after.settings, settingsFile, answers };
  const { config, pending, untried } = await prepareUpdate(caller, copy, found).catch(async (error) => {
    if (copy.isNew) await removeCopy(copy.path).catch(() => {});
    throw error;
  });
  if (untried !== undefined) terminal.note(`viv: migrations are not tried beforehand: ${untried}`);
  if (pending.length > 0)
    terminal.note(`viv: migrations ${pending.join(", ")} apply; their trial was rolled back`);
  const journal: Journal = {
    format: 1,
    phase: "switching",
    unit,
    dataDir: config.dataDir,
    before: left ? beforeOfBoth(left, now) : now,
    after: { ...after, version: copy.version, copy: copy.path, isNew: copy.isNew },
    // Rows that a stuck update has saved are those of before this one too.
    since: left?.since ?? new Date().toISOString(),
  };
  const deps = updateDepsOf({ config, terminal }, journal);
  const { outcome, reason } = await runUpdate(
    { ...deps, onJournal: () => startWatcher(unit, copy.path) },
    journal,
  );
  if (outcome === "updated") return;
  const log = `The log: journalctl -u ${unit} --since "${journal.since.slice(0, 19).replace("T", " ")} UTC"`;
  if (outcome === "reverted")
    throw new CliError(`${copy.version} was not installed: ${reason}`, {
      hint: `The version of before serves again. ${log}`,
    });
  throw new CliError(`${copy.version} does not serve, and neither does the version of before: ${reason}`, {
    hint: `Each start of ${unit}.service, and the next viv install, go on from here. ${log}`,
  });
}

/** The files that an update after a stuck one goes back to: the version that served last, with settings mended since. */
export function beforeOfBoth({ before, after }: Journal, now: UnitFiles): UnitFiles {
  return { unit: before.unit, settings: now.settings === after.settings ? before.settings : now.settings };
}
