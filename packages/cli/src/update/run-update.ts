/** Runs an update from the phase that its journal has to its end. Every step may be repeated. */
import { readFile, rm } from "node:fs/promises";
import { writeDurably } from "@vivarium/kit/durable-file";
import { messageOf } from "@vivarium/kit/unknown-error";
import {
  AFTER_DEATH,
  type Journal,
  NEXT,
  type Outcome,
  type Phase,
  removeJournal,
  type UnitFiles,
  writeJournal,
} from "./journal.ts";

/** The parts of a service manager that an update needs. */
export interface Units {
  /** Resolves once the unit has stopped; its machines run on. */
  stop(unit: string): Promise<void>;
  /** Resolves once the unit is active; one that is active already is left so. Rejects when it does not come up. */
  start(unit: string): Promise<void>;
  /** Makes the manager read the unit's file again, and start the unit at boot. */
  reload(unit: string): Promise<void>;
}

export interface UpdateDeps {
  units: Units;
  journalFile: string;
  unitFile: string;
  settingsFile: string;
  /** Resolves once the service answers, with processes of this version if one is given; rejects at its limit. */
  waitUntilServes(version?: string): Promise<void>;
  /** Puts the rows back that the new version has saved before it changed the schema; undefined if it has not. */
  putRowsBack(): Promise<string | undefined>;
  removeCopy(copy: string): Promise<void>;
  note(line: string): void;
  /** Called once the journal is on disk, before the first step. */
  onJournal?: () => Promise<void>;
}

export interface Ended {
  outcome: Outcome;
  reason: string | undefined;
}

export async function runUpdate(deps: UpdateDeps, journal: Journal): Promise<Ended> {
  let at = journal;
  await writeJournal(deps.journalFile, at);
  await deps.onJournal?.();
  for (;;) {
    const failure = await STEPS[at.phase](deps, at).then(
      () => undefined,
      (error: unknown) => messageOf(error),
    );
    const next = NEXT[at.phase][failure === undefined ? "done" : "failed"];
    // The first failure is the cause: a later one is of going back.
    const reason = at.reason ?? failure;
    if (failure !== undefined) deps.note(`viv: ${failure}`);
    if (isOutcome(next)) return await end(deps, { ...at, reason }, next);
    at = { ...at, phase: next, ...(reason !== undefined && { reason }) };
    // On a full disk the journal stays a phase behind: another process then goes back, or waits as this one did.
    await writeJournal(deps.journalFile, at).catch(() => {});
  }
}

/** Continues an update whose process has died. */
export async function continueUpdate(deps: UpdateDeps, journal: Journal): Promise<Ended> {
  const phase = AFTER_DEATH[journal.phase];
  const reason = journal.reason ?? (phase === "reverting" ? "it was interrupted" : undefined);
  deps.note(`viv: an update to ${journal.after.version} was interrupted (${journal.phase}); ${WORDS[phase]}`);
  return await runUpdate(deps, { ...journal, phase, ...(reason !== undefined && { reason }) });
}

const WORDS: Record<Phase, string> = {
  switching: "continuing",
  starting: "waiting for the new version",
  reverting: "going back to the version of before",
};

const isOutcome = (next: Phase | Outcome): next is Outcome => !(next in NEXT);

/** A journal that is stuck stays, for the next install or start. */
async function end(
  deps: UpdateDeps,
  { after, reason }: Omit<Journal, "reason"> & { reason: string | undefined },
  outcome: Outcome,
): Promise<Ended> {
  if (outcome !== "stuck") await removeJournal(deps.journalFile);
  if (outcome === "reverted" && after.isNew) await deps.removeCopy(after.copy).catch(() => {});
  return { outcome, reason };
}

const STEPS: Record<Phase, (deps: UpdateDeps, journal: Journal) => Promise<void>> = {
  switching: async (deps, { unit, after }) => {
    await deps.units.stop(unit);
    await writeFiles(deps, after);
    await deps.units.reload(unit);
  },
  starting: async (deps, { unit, after }) => {
    await deps.units.start(unit);
    await deps.waitUntilServes(after.version);
  },
  reverting: async (deps, { unit, before, after }) => {
    await deps.units.stop(unit);
    // Without its rows the version of before may still serve, if the schema was not changed: that is tried.
    await deps.putRowsBack().then(
      (done) => done !== undefined && deps.note(`viv: ${done}`),
      (error: unknown) => deps.note(`viv: the rows of before are not put back: ${messageOf(error)}`),
    );
    const files = await filesToGoBackTo(deps, { before, after });
    // Where the disk is full, the copy of the new version makes space.
    await writeFiles(deps, files).catch(async (error: unknown) => {
      if (!after.isNew) throw error;
      await deps.removeCopy(after.copy);
      await writeFiles(deps, files);
    });
    await deps.units.reload(unit);
    await deps.units.start(unit);
    await deps.waitUntilServes();
  },
};

/** The files of before. Settings that are neither those of before nor of the update are the operator's, and stay. */
async function filesToGoBackTo(
  { settingsFile, note }: UpdateDeps,
  { before, after }: Pick<Journal, "before" | "after">,
): Promise<UnitFiles> {
  const settings = await readFile(settingsFile, "utf8").catch(() => undefined);
  if (settings === after.settings || settings === before.settings) return before;
  note(`viv: ${settingsFile} was changed during the update, and stays as it is`);
  return { ...before, settings };
}

/** Settings first: a unit that is started with those of the other version finds at least all files. */
async function writeFiles(deps: UpdateDeps, { unit, settings }: UnitFiles): Promise<void> {
  if (settings === undefined) await rm(deps.settingsFile, { force: true });
  else await writeDurably(deps.settingsFile, settings, 0o600);
  await writeDurably(deps.unitFile, unit, 0o644);
}
