/**
 * Begins, finishes and undoes the part of a restore that replaces directories. The journal is on disk before the first
 * of them is moved, and goes once all is in place.
 */
import { existsSync } from "node:fs";
import { mkdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { CliError } from "../cli-error.ts";
import type { Layout } from "../supervisor/layout.ts";
import { stopLeftPostgres } from "../supervisor/postgres.ts";
import {
  type RestoreJournal,
  readUnfinishedRestore,
  restoreJournalOf,
} from "../supervisor/unfinished-restore.ts";

/**
 * Writes down that these directories are made anew. Nothing is moved yet. `hasOwnRows`: an earlier restore that was
 * interrupted may have loaded rows into the operator's own database.
 */
export async function beginRestore(
  layout: Layout,
  backup: string,
  dirs: readonly string[],
  hasOwnRows = false,
): Promise<RestoreJournal> {
  const stamp = new Date().toISOString().replaceAll(/\D/g, "").slice(0, 14);
  const moves = dirs.map((dir) => {
    const name = path.relative(layout.dataDir, dir);
    return { name, aside: `${name}.before-restore-${stamp}`, existed: existsSync(dir) };
  });
  const journal = { backup, moves, hasOwnRows };
  await writeJournal(layout, journal);
  return journal;
}

export async function moveAside(layout: Layout, { moves }: RestoreJournal): Promise<void> {
  for (const { name, aside, existed } of moves)
    if (existed) await rename(at(layout, name), at(layout, aside));
}

/** For before rows are loaded into a database of the operator's own. */
export async function noteOwnRows(layout: Layout, journal: RestoreJournal): Promise<void> {
  await writeJournal(layout, { ...journal, hasOwnRows: true });
}

/** Returns where what was there before is now. */
export async function finishRestore(layout: Layout, { moves }: RestoreJournal): Promise<string[]> {
  await syncParents(layout, moves);
  await rm(restoreJournalOf(layout));
  await syncPath(layout.dataDir);
  return moves.filter(({ existed }) => existed).map(({ aside }) => at(layout, aside));
}

/** Puts back what was there before, also after an undo that was interrupted. */
async function undoRestore(layout: Layout, journal: RestoreJournal): Promise<void> {
  await putBack(layout, journal);
  await rm(restoreJournalOf(layout), { force: true });
  await syncPath(layout.dataDir);
}

/**
 * For before another restore begins. Where rows may be in the operator's database, the journal stays until that of the new
 * restore replaces it: should the new one fail before, the keys are still not those of the rows.
 */
export async function undoUnfinishedRestore(layout: Layout): Promise<RestoreJournal | undefined> {
  const journal = await readUnfinishedRestore(layout);
  if (journal) await undoUnlessOwnRows(layout, journal);
  return journal;
}

/** Puts back what was there. The journal goes only where the rows are still those of the keys that are back. */
export async function undoUnlessOwnRows(layout: Layout, journal: RestoreJournal): Promise<void> {
  if (journal.hasOwnRows) await putBack(layout, journal);
  else await undoRestore(layout, journal);
}

/** Undoes the restore that was interrupted, for good. Returns what was to be restored. */
export async function takeBackUnfinished(layout: Layout): Promise<string> {
  const journal = await readUnfinishedRestore(layout);
  if (!journal) throw new CliError(`no restore into ${layout.dataDir} was interrupted; nothing was changed`);
  if (journal.hasOwnRows)
    throw new CliError("the rows of the backup may be in the database of DATABASE_URL already", {
      hint: `Repeat the restore instead: viv restore-backup --force --data-dir ${layout.dataDir} ${journal.backup}`,
    });
  await undoRestore(layout, journal);
  return journal.backup;
}

async function putBack(layout: Layout, { moves }: RestoreJournal): Promise<void> {
  // The database of a restore that was killed runs on.
  await stopLeftPostgres(path.join(layout.postgresDir, "data"));
  for (const { name, aside, existed } of moves.toReversed()) {
    const [source, target] = [at(layout, name), at(layout, aside)];
    // Without the directory aside it was not moved yet, or is back already.
    if (existed && !existsSync(target)) continue;
    await rm(source, { recursive: true, force: true });
    if (existed) await rename(target, source);
  }
  await syncParents(layout, moves);
}

async function syncParents(layout: Layout, moves: RestoreJournal["moves"]): Promise<void> {
  for (const dir of new Set(moves.map(({ name }) => path.dirname(at(layout, name))))) {
    await mkdir(dir, { recursive: true });
    await syncPath(dir);
  }
}

async function writeJournal(layout: Layout, journal: RestoreJournal): Promise<void> {
  await writeDurably(restoreJournalOf(layout), `${JSON.stringify(journal, null, 2)}\n`, 0o600);
}

const at = ({ dataDir }: Layout, name: string) => path.join(dataDir, name);
