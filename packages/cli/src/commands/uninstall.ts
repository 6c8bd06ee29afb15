/** `viv uninstall`: removes the service from this host, and with --data what it kept. */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { CliError, UsageError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { configOf, sayContradicted } from "../install/config-in-force.ts";
import { emptyPlace, isSameDir } from "../install/directories.ts";
import { type Elsewhere, keptElsewhere, objectsDirOf } from "../install/elsewhere.ts";
import {
  DEFAULT_NAME,
  type Installed,
  listInstalled,
  parseUnitName,
  placesOf,
  SETTINGS_IN_DATA,
} from "../install/installed.ts";
import { requireNoneLeft, requireServed, sessionsAre } from "../install/live-machines.ts";
import { requireOwnDataDir } from "../install/own-data-dir.ts";
import { ourData, type Removal, type Step, stepsOf } from "../install/removal.ts";
import { readSettings, type Settings } from "../install/settings-file.ts";
import { countMachines, hasOtherSlots } from "../install/slot-remains.ts";
import { requireRootFor } from "../install/systemd.ts";
import { type SessionsFate, stopService } from "../service/stop-service.ts";
import { requireData } from "../supervisor/data-in-use.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findHolder, type Holder } from "../supervisor/lock.ts";
import { stopLeftPostgres } from "../supervisor/postgres.ts";
import { countServices } from "../supervisor/registered-services.ts";
import type { Terminal } from "../terminal.ts";
import { copiesDirOf } from "../update/copies.ts";
import { takeUpdateLock } from "../update/update-lock.ts";
import { type Call, Verb } from "./verb.ts";

const PLACES = { link: "symbolic link", mount: "mount point" };

interface Options {
  name: string;
  dataDir?: string;
  data?: boolean;
  pause?: boolean;
  sessions?: boolean;
  yes?: boolean;
}

export function uninstallCommand(): Verb {
  return new Verb("uninstall", [
    "sudo viv uninstall --pause",
    "sudo viv uninstall --data",
    "sudo viv uninstall --name second --data --yes",
  ])
    .summary("remove the service from this host")
    .description(
      `Stop the service and remove its unit, users, nft table, namespaces, cgroups and mounts: nothing is left but the
data directory, which has the settings then. With --data also the data, after a question. What settings put outside of the
data directory, such as VIV_OBJECTS_DIR, stays and is named. Packages that set-up installed, and
this checkout, stay. May be repeated. Refused while sessions are live: --pause keeps them, --sessions and --data end them.`,
    )
    .option("--name <name>", "name of the unit", parseUnitName, DEFAULT_NAME)
    .option("--data-dir <dir>", "data directory of the service (default: that of the unit)")
    .option("--data", "also delete the data: database, keys, sessions, saved state, images, builds of set-up")
    .option("--pause", "pause all live sessions first")
    .option("--sessions", "end all sessions first")
    .option("--yes", "delete the data without the question")
    .does(uninstall);
}

async function uninstall(call: Call<Options>): Promise<number> {
  requireRootFor("uninstall");
  checkOptions(call.options);
  // An install that is at work would write the unit and its copies again.
  const lock = await takeUpdateLock(call.options.name, "viv uninstall");
  try {
    return await uninstallLocked(call);
  } finally {
    await lock.release();
  }
}

async function uninstallLocked(call: Call<Options>): Promise<number> {
  const { terminal, options } = call;
  const installed = await listInstalled();
  const unit = installed.find(({ name }) => name === options.name);
  const dataDir = dataDirOf(call, unit, installed);
  await requireData(dataDir);
  if (!unit) await requireOwnDataDir(dataDir);
  // Read before any step removes them.
  const { config, settings } = await inForce(call, unit, dataDir);
  const holder = await findHolder(layoutOf(dataDir).lockFile);
  const live = await countMachines(dataDir);
  checkLive(options, live);
  if (!holder && (options.pause || options.sessions) && !options.data)
    await requireServed(dataDir, `uninstall ${options.pause ? "--pause" : "--sessions"}`);
  if (options.data && !(await isAgreed(call, dataDir, live))) {
    terminal.note("viv: nothing was removed");
    return EXIT.failed;
  }
  if (holder) await stop({ config, terminal }, holder, options);
  if (!options.data) await requireNoneLeft(dataDir, "Repeat viv uninstall then; nothing was removed.");
  await stopLeftPostgres(path.join(layoutOf(dataDir).postgresDir, "data"));
  const isLast = await isLastService(options.name, dataDir, installed);
  const left = await runSteps(stepsOf(removalOf(config, options, { isLast, settings })), terminal);
  const kept = keptElsewhere(dataDir, settings);
  terminal.note(lastLine(config, options, { left, hasKept: kept.length > 0 }));
  if (left === 0) await sayWhatStays(terminal, { dataDir, kept, isDataGone: options.data ?? false });
  return left === 0 ? EXIT.ok : EXIT.failed;
}

/** The settings of the unit alone; of a service without one, those that an earlier uninstall has left, and the caller's. */
async function inForce(
  { config, terminal }: Context,
  unit: Installed | undefined,
  dataDir: string,
): Promise<{ config: CliConfig; settings: Settings }> {
  if (unit) {
    const { config: ofUnit, ...facts } = configOf(config, unit);
    sayContradicted({ terminal }, facts);
    return { config: ofUnit, settings: unit.settings };
  }
  const settings = { ...config.childEnv, ...(await settingsInData(dataDir)) };
  const databaseUrl = settings.DATABASE_URL || config.databaseUrl;
  return { config: { ...config, dataDir, databaseUrl }, settings };
}

/** The data directory of the unit; of a service without one, what the options say. */
function dataDirOf(
  { config, options }: Call<Options>,
  unit: Installed | undefined,
  installed: readonly Installed[],
): string {
  if (!unit) {
    const other = installed.find(({ dataDir }) => isSameDir(dataDir, config.dataDir));
    if (!other) return config.dataDir;
    throw new CliError(`${config.dataDir} is served by ${other.name}.service`, {
      hint: `viv uninstall --name ${other.name}`,
    });
  }
  if (options.dataDir === undefined || isSameDir(path.resolve(options.dataDir), unit.dataDir))
    return unit.dataDir;
  throw new CliError(`${unit.name}.service serves ${unit.dataDir}, not ${options.dataDir}`, {
    hint: "Leave --data-dir out, or name another unit with --name.",
  });
}

function checkOptions({ data, pause, sessions }: Options): void {
  if (pause && (sessions || data))
    throw new UsageError("--pause keeps the sessions, and --sessions and --data end them: choose one");
}

function checkLive({ data, pause, sessions }: Options, live: number): void {
  if (live === 0 || data || pause || sessions) return;
  throw new CliError(`${sessionsAre(live)} live`, {
    hint: "Keep them in the data directory with --pause, or end them with --sessions.",
  });
}

async function isAgreed(
  { terminal, options }: Call<Options>,
  dataDir: string,
  live: number,
): Promise<boolean> {
  if (options.yes) return true;
  const there = await ourData(dataDir);
  if (there.length === 0) return true;
  if (!terminal.canAsk)
    throw new UsageError(
      "uninstall --data asks before it deletes, and nobody can answer here",
      "Without a question: --yes",
    );
  terminal.note(`${dataDir} has: ${there.join(", ")}. ${live} sessions are live; all sessions are lost.`);
  return (await terminal.ask(`Type the name of the directory to delete its data: `)).trim() === dataDir;
}

async function stop(
  { config, terminal }: { config: CliConfig; terminal: Terminal },
  holder: Holder,
  { data, pause, sessions }: Options,
): Promise<void> {
  const fate: SessionsFate = pause ? "pause" : sessions || data ? "end" : "leave";
  await stopService({ config, terminal }, holder, fate).catch(async (error: unknown) => {
    // The data goes, and its sessions with it, whether or not the service still answers.
    if (!data) throw error;
    await stopService({ config, terminal }, holder, "leave");
  });
  terminal.note(`viv: the service of ${config.dataDir} has stopped`);
}

async function isLastService(
  name: string,
  dataDir: string,
  installed: readonly Installed[],
): Promise<boolean> {
  if (installed.some((one) => one.name !== name)) return false;
  return (await countServices()) === 0 && !(await hasOtherSlots(dataDir));
}

function removalOf(
  { dataDir, cacheDir }: CliConfig,
  { name, data = false }: Options,
  { isLast, settings }: { isLast: boolean; settings: Settings },
): Removal {
  const ofUnit = settings.VIV_CACHE_DIR || cacheDir;
  const cacheDirs = ofUnit === cacheDir ? [cacheDir] : [ofUnit, cacheDir];
  const copiesDir = copiesDirOf(name);
  const objectsDir = objectsDirOf(dataDir, settings);
  return { name, ...placesOf(name), dataDir, withData: data, isLast, copiesDir, cacheDirs, objectsDir };
}

/** Runs every step, also after one that fails. Returns how many have left something. */
async function runSteps(steps: readonly Step[], terminal: Terminal): Promise<number> {
  let left = 0;
  for (const { what, isThere, remove } of steps) {
    try {
      if (!(await isThere())) continue;
      await remove();
      // Only what is looked for and not found is said to be removed.
      if (await isThere()) throw new Error("it is still there");
      terminal.note(`  removed  ${what}`);
    } catch (error) {
      left++;
      terminal.note(`  LEFT     ${what}: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return left;
}

/** The settings that an earlier uninstall without --data has left. */
async function settingsInData(dataDir: string): Promise<Settings> {
  return readSettings(await readFile(path.join(dataDir, SETTINGS_IN_DATA), "utf8").catch(() => ""));
}

async function sayWhatStays(
  terminal: Terminal,
  { dataDir, kept, isDataGone }: { dataDir: string; kept: readonly Elsewhere[]; isDataGone: boolean },
): Promise<void> {
  const place = isDataGone ? await emptyPlace(dataDir) : undefined;
  if (place) terminal.note(`viv: ${dataDir} is empty now, and stays: it is a ${PLACES[place]}`);
  for (const { what, place: at, setting } of kept) terminal.note(`  stays    ${what}: ${at} (${setting})`);
  if (isDataGone && kept.length > 0)
    terminal.note(
      "viv: what is outside of the data directory may be another service's too: remove it yourself",
    );
}

function lastLine(
  { dataDir, databaseUrl }: CliConfig,
  { data }: Options,
  { left, hasKept }: { left: number; hasKept: boolean },
): string {
  if (left > 0) return "viv: something is left; viv uninstall may be repeated";
  const ofOwn = databaseUrl === undefined ? "" : "; the database of DATABASE_URL is as it was";
  const nothing = `viv: nothing ${hasKept ? "else " : ""}of the service is left${ofOwn}`;
  if (data || !existsSync(dataDir)) return nothing;
  return `viv: the data is in ${dataDir}${ofOwn}; viv install takes it up again`;
}
