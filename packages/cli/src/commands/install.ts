/** `viv install`: makes the service of this machine a systemd unit that starts at boot. */
import { existsSync } from "node:fs";
import { mkdir, readFile, rm } from "node:fs/promises";
import path from "node:path";
import { writeDurably } from "@vivarium/kit/durable-file";
import { runHostCommand } from "@vivarium/kit/host-command";
import { parseListen } from "../args/values.ts";
import { CliError } from "../cli-error.ts";
import { type CliConfig, isSetting } from "../config.ts";
import { bootstrapKeyPath } from "../connect.ts";
import type { Context } from "../context.ts";
import { configOf, sayContradicted } from "../install/config-in-force.ts";
import { isSameDir } from "../install/directories.ts";
import {
  addressesOf,
  checkFree,
  DEFAULT_NAME,
  type Installed,
  listInstalled,
  parseUnitName,
  placesOf,
  SETTINGS_IN_DATA,
} from "../install/installed.ts";
import { writeMachinesUnit } from "../install/machines-unit.ts";
import { writeNeedrestart } from "../install/needrestart.ts";
import { placesIn } from "../install/places.ts";
import {
  newSettings,
  readSettings,
  type Settings,
  withAbsolutePaths,
  withSettings,
} from "../install/settings-file.ts";
import { startUnit } from "../install/start-unit.ts";
import {
  requireRootFor,
  requireSystemctl,
  requireSystemd,
  systemdVersion,
  unitState,
} from "../install/systemd.ts";
import { serviceUnit } from "../install/unit-text.ts";
import { requireFreeAddress, urlOf } from "../supervisor/address.ts";
import { requireData } from "../supervisor/data-in-use.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { findHolder, type Holder, refuseCommand } from "../supervisor/lock.ts";
import { ROOT } from "../supervisor/repository.ts";
import { type Copy, copiesDirOf, listCopies, makeCopy, removeOthers } from "../update/copies.ts";
import { journalFileOf, removeJournal, type UnitFiles } from "../update/journal.ts";
import { isUp, waitForAnswer } from "../update/service-update.ts";
import { settleUpdate } from "../update/settle.ts";
import { checkedConfigOfUnit } from "../update/unit-config.ts";
import { takeUpdateLock } from "../update/update-lock.ts";
import { updateUnit } from "../update/update-unit.ts";
import { type Call, Verb } from "./verb.ts";

interface Options {
  name: string;
  dataDir?: string;
  listen?: string;
  ingressListen?: string;
  envFile?: string;
}

/** Variables of the caller that are not settings of the service. */
const NOT_SETTINGS = ["VIV_DATA_DIR", "VIV_URL", "VIV_SUPERVISED"];

export function installCommand(): Verb {
  return new Verb("install", [
    "sudo viv install",
    "sudo viv install --data-dir /srv/vivarium --listen 0.0.0.0:7400",
    "sudo viv install --name second --data-dir /srv/second --listen 127.0.0.1:7500 --ingress-listen 127.0.0.1:7501",
  ])
    .summary("make it a service of the system")
    .description(
      `Copy this checkout, and write, enable and start a systemd unit that runs the copy: the service then starts at boot,
is started again when it fails, logs to the journal, and pauses its sessions before the host goes down. Settings are in
/etc/vivarium/NAME.env, which a later install keeps. An install over an older one is an update: machines of live sessions
run on meanwhile, and if the new version does not serve, the one of before does again.`,
    )
    .option(
      "--data-dir <dir>",
      "everything the service keeps (default: $VIV_DATA_DIR, that of the unit, or /var/lib/vivarium)",
    )
    .option(
      "--name <name>",
      "name of the unit, for a second service on this host",
      parseUnitName,
      DEFAULT_NAME,
    )
    .option("--listen <host:port>", "address of the HTTP interface, kept as a setting", parseListen)
    .option(
      "--ingress-listen <host:port>",
      "address for visitors of previews, kept as a setting",
      parseListen,
    )
    .option("--env-file <file>", "settings to keep, as lines NAME=value")
    .does(install);
}

async function install(call: Call<Options>): Promise<void> {
  requireRootFor("install");
  requireSystemd("install");
  const { name } = call.options;
  const lock = await takeUpdateLock(name, "viv install");
  try {
    // An unfinished update that stays so is no reason against a version that may mend it.
    const settled = await settleUpdate(call, name);
    await installLocked(call, settled?.outcome === "stuck");
  } finally {
    await lock.release();
  }
}

async function installLocked(
  { config: caller, terminal, options }: Call<Options>,
  isStuck: boolean,
): Promise<void> {
  const { name } = options;
  const places = placesOf(name);
  const copiesDir = copiesDirOf(name);
  const installed = await listInstalled();
  const before = installed.find((one) => one.name === name);
  const config = { ...caller, dataDir: dataDirFor(caller, options, before) };
  const { dataDir } = config;
  await requireData(dataDir);
  const files = [places.settingsFile, path.join(dataDir, SETTINGS_IN_DATA)];
  const settings = await settingsText(name, files, { ...config, options });
  const wanted = { name, dataDir, settings: readSettings(settings) };
  // A new unit has taken the environment over.
  if (before) sayContradicted({ terminal }, configOf(caller, { ...before, settings: wanted.settings }));
  checkFree(wanted, installed, before === undefined && existsSync(places.unitFile));
  const state = await unitState(name);
  const holder = await findHolder(layoutOf(dataDir).lockFile);
  await checkNotServed(wanted, before, { mainPid: state.mainPid, holder });

  const copy = await makeCopy(ROOT, copiesDir);
  terminal.note(`viv: ${copy.version} is in ${copy.path}`);
  await writeMachinesUnit();
  await writeNeedrestart();
  const journalFile = journalFileOf(copiesDir);
  const facts = { name, dataDir, copy: copy.path, ...places, journalFile };
  const otherPlaces = placesIn(dataDir, wanted.settings);
  const unit = serviceUnit({ ...facts, otherPlaces, systemd: await systemdVersion() });
  const after = { unit, settings };
  // The journal of a stuck update knows a version that served, and its rows.
  if (before && (isStuck || isUp(state, holder))) {
    const answers = await waitForAnswer(config, terminal);
    await updateUnit({ config, terminal }, name, { copy, after, answers });
  } else await startAnew({ config, terminal }, name, after);
  await removeOthers(copiesDir, [
    copy.path,
    copy.path === before?.copy ? await newestBut(copiesDir, copy) : before?.copy,
  ]);

  const { listen } = addressesOf(wanted.settings);
  terminal.note(
    [
      `${name}.service serves ${copy.version}`,
      `  URL        ${urlOf(listen)}`,
      `  API key    ${bootstrapKeyPath(dataDir)}`,
      `  Settings   ${places.settingsFile}`,
      `  Logs       journalctl -u ${name}`,
      `  Stop       systemctl stop ${name} (machines of live sessions run on)`,
    ].join("\n"),
  );
}

/** A data directory that nobody names, or names by a link, is that of the unit, as for the other verbs about units. */
export function dataDirFor(
  { dataDir, childEnv }: Pick<CliConfig, "dataDir" | "childEnv">,
  options: { dataDir?: string },
  unit: Pick<Installed, "dataDir"> | undefined,
): string {
  const isNamed = options.dataDir !== undefined || Boolean(childEnv.VIV_DATA_DIR);
  if (unit && (!isNamed || isSameDir(dataDir, unit.dataDir))) return unit.dataDir;
  return dataDir;
}

/** The copy that is kept beside the one that runs: the newest other one. */
async function newestBut(dir: string, { path: copy }: Copy): Promise<string | undefined> {
  return (await listCopies(dir)).findLast((one) => one.path !== copy)?.path;
}

/** A unit that is new, was stopped or has failed: there is nothing to go back to. */
async function startAnew(
  { config, terminal }: Context,
  name: string,
  after: UnitFiles & { settings: string },
): Promise<void> {
  const { dataDir } = config;
  const { unitFile, settingsFile } = placesOf(name);
  await checkedConfigOfUnit(config, { ...after, dataDir, settingsFile });
  await mkdir(path.dirname(settingsFile), { recursive: true, mode: 0o755 });
  await writeDurably(settingsFile, after.settings, 0o600);
  await rm(path.join(dataDir, SETTINGS_IN_DATA), { force: true });
  await writeDurably(unitFile, after.unit, 0o644);
  await removeJournal(journalFileOf(copiesDirOf(name)));
  await reportFaults(unitFile, (line) => terminal.note(line));
  await requireSystemctl("daemon-reload");
  await requireSystemctl("enable", "--quiet", `${name}.service`);
  await startUnit(name, terminal);
}

/** The text of the settings file: made new, or of the first of the files, kept but for what the options say. */
async function settingsText(
  name: string,
  files: readonly string[],
  given: { childEnv: Settings; databaseUrl: string | undefined; options: Options },
): Promise<string> {
  const { listen, ingressListen, envFile } = given.options;
  const fromFile = envFile === undefined ? {} : readSettings(await readEnvFile(envFile));
  const asked: Settings = {
    ...withAbsolutePaths(fromFile, process.cwd()),
    ...(listen !== undefined && { VIV_LISTEN: listen }),
    ...(ingressListen !== undefined && { VIV_INGRESS_LISTEN: ingressListen }),
  };
  const texts = await Promise.all(files.map((file) => readFile(file, "utf8").catch(() => undefined)));
  const present = texts.find((text) => text !== undefined);
  if (present !== undefined) return withSettings(present, asked);
  const ofCaller = Object.entries(given.childEnv).filter(
    ([variable]) => isSetting(variable, given.childEnv) && !NOT_SETTINGS.includes(variable),
  );
  const { databaseUrl: url } = given;
  const chosen = {
    ...withAbsolutePaths(Object.fromEntries(ofCaller), process.cwd()),
    ...(url !== undefined && { DATABASE_URL: url }),
    ...asked,
  };
  return newSettings(name, chosen);
}

async function readEnvFile(file: string): Promise<string> {
  return await readFile(file, "utf8").catch((cause: Error) => {
    throw new CliError(`cannot read --env-file ${file}: ${cause.message}`, { cause });
  });
}

/** Refuses a data directory or an address that a process of this host has, unless it is the unit that is replaced. */
async function checkNotServed(
  { dataDir, settings }: { dataDir: string; settings: Settings },
  before: Installed | undefined,
  { mainPid, holder }: { mainPid: number; holder: Holder | undefined },
): Promise<void> {
  if (holder) refuseCommand(holder, dataDir);
  if (holder && holder.pid !== mainPid) {
    throw new CliError(`a service (pid ${holder.pid}) that is no unit serves ${dataDir} at ${holder.url}`, {
      hint: `Stop it, and install again: viv down --data-dir ${dataDir}. Machines of live sessions run on.`,
    });
  }
  const present = mainPid > 0 && before ? Object.values(addressesOf(before.settings)) : [];
  for (const address of Object.values(addressesOf(settings)))
    if (!present.includes(address)) await requireFreeAddress(address);
}

/** Says what systemd finds wrong in the unit: it starts all the same, without the lines that are meant. */
async function reportFaults(unitFile: string, say: (line: string) => void): Promise<void> {
  const { code, stderr } = await runHostCommand("systemd-analyze", [
    "verify",
    "--recursive-errors=no",
    unitFile,
  ]);
  if (code !== 127 && stderr.trim() !== "") say(`viv: systemd-analyze verify says: ${stderr.trim()}`);
}
