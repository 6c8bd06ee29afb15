/**
 * The journal of a restore at work, in the data directory. One that is found without its restore is of a restore that was
 * killed: keys and database may not belong together then, or be missing as in a directory that was never used.
 */
import { readFile } from "node:fs/promises";
import path from "node:path";
import { hasCode } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Layout } from "./layout.ts";

export const RESTORE_JOURNAL = "restore.json";

/** One directory that the restore makes anew. Names are relative to the data directory. */
export interface Move {
  name: string;
  /** Where what was there before is kept. */
  aside: string;
  /** Whether there was anything. */
  existed: boolean;
}

export interface RestoreJournal {
  /** The file that is restored. */
  backup: string;
  moves: Move[];
  /** Whether rows may be in the operator's own database already, where they cannot be taken back. */
  hasOwnRows: boolean;
}

export const restoreJournalOf = ({ dataDir }: Pick<Layout, "dataDir">) => path.join(dataDir, RESTORE_JOURNAL);

export async function readUnfinishedRestore(
  layout: Pick<Layout, "dataDir">,
): Promise<RestoreJournal | undefined> {
  const file = restoreJournalOf(layout);
  try {
    return JSON.parse(await readFile(file, "utf8")) as RestoreJournal;
  } catch (cause) {
    if (hasCode(cause, "ENOENT")) return undefined;
    throw new CliError(`the journal of a restore, ${file}, cannot be read`, {
      hint: "A restore was interrupted. Move the directories *.before-restore-* back to their names, and remove the file.",
      cause,
    });
  }
}

/** Throws if a restore into this data directory was interrupted, with both ways out. */
export async function requireNoUnfinishedRestore(layout: Pick<Layout, "dataDir">): Promise<void> {
  const journal = await readUnfinishedRestore(layout);
  if (!journal) return;
  const { dataDir } = layout;
  const force = journal.moves.some(({ existed }) => existed) ? "--force " : "";
  const back = `Or go back to what was there before: viv restore-backup --undo --data-dir ${dataDir}`;
  throw new CliError(
    `a restore of ${journal.backup} into ${dataDir} was interrupted: its keys and rows may not belong together`,
    {
      hint: `Repeat it: viv restore-backup ${force}--data-dir ${dataDir} ${journal.backup}. ${journal.hasOwnRows ? "" : back}`.trim(),
    },
  );
}
