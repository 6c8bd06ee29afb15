/**
 * The journal of an update: what the unit was before and what it becomes, and how far the update is. It is on disk before
 * each step, so that another process continues after a kill -9 or a power cut. The moves between phases are this table:
 */
import { readFile, rm } from "node:fs/promises";
import path from "node:path";
import { syncPath, writeDurably } from "@vivarium/kit/durable-file";
import { CliError } from "../cli-error.ts";

export type Phase = "switching" | "starting" | "reverting";
export type Outcome = "updated" | "reverted" | "stuck";

/** The phase or the end that follows the step of a phase, by whether the step succeeded. */
export const NEXT: Record<Phase, { done: Phase | Outcome; failed: Phase | Outcome }> = {
  // The service of before is stopped, and the unit and its settings become those of the new version.
  switching: { done: "starting", failed: "reverting" },
  // The new version is started; it saves the rows and changes the schema, and answers.
  starting: { done: "updated", failed: "reverting" },
  // Stopped, the rows of before put back, unit and settings of before, started.
  reverting: { done: "reverted", failed: "stuck" },
};

/**
 * The phase in which another process continues. An update that was only switching is not completed: it may have been
 * ended on purpose.
 */
export const AFTER_DEATH: Record<Phase, Phase> = {
  switching: "reverting",
  starting: "starting",
  reverting: "reverting",
};

/** The text of the unit, and of its settings where there are any. */
export interface UnitFiles {
  unit: string;
  settings: string | undefined;
}

export interface Journal {
  format: 1;
  phase: Phase;
  unit: string;
  dataDir: string;
  before: UnitFiles;
  /** `isNew`: the copy was made for this update, and goes with it. */
  after: UnitFiles & { version: string; copy: string; isNew: boolean };
  /** RFC 3339. */
  since: string;
  /** Why the new version was given up. */
  reason?: string;
}

export const journalFileOf = (copiesDir: string) => path.join(copiesDir, "update.json");

export async function readJournal(file: string): Promise<Journal | undefined> {
  const text = await readFile(file, "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const journal = parseJournal(text);
  if (journal) return journal;
  throw new CliError(`${file}, the journal of an update, is damaged: no update can be continued from it`, {
    hint: "Remove the file, and run viv install again: it takes the unit as it is now.",
  });
}

function parseJournal(text: string): Journal | undefined {
  try {
    const { phase, before, after } = JSON.parse(text) as Partial<Journal>;
    const isWhole = phase !== undefined && phase in NEXT && before?.unit && after?.unit;
    return isWhole ? (JSON.parse(text) as Journal) : undefined;
  } catch {
    return undefined;
  }
}

/** Root alone reads it: settings may hold the password of a database. */
export async function writeJournal(file: string, journal: Journal): Promise<void> {
  await writeDurably(file, JSON.stringify(journal), 0o600);
}

export async function removeJournal(file: string): Promise<void> {
  await rm(file, { force: true });
  await syncPath(path.dirname(file));
}
