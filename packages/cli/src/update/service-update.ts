/** The parts of this host that an update of a unit works with: systemd, the service that answers, and its saved rows. */
import { lstat, readdir } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { runHostCommand } from "@vivarium/kit/host-command";
import { identify } from "@vivarium/kit/process-identity";
import { putRows, wordsOnHeads } from "../backup/put-rows.ts";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey } from "../connect.ts";
import type { Context } from "../context.ts";
import { placesOf } from "../install/installed.ts";
import { startUnit } from "../install/start-unit.ts";
import { requireSystemctl, type UnitState } from "../install/systemd.ts";
import { WAIT_FOR_START_MS } from "../service/start-limit.ts";
import { askHealth } from "../service/wait-for-health.ts";
import { HOPELESS_DEATHS } from "../supervisor/keeper.ts";
import { layoutOf, SAVED_ROWS } from "../supervisor/layout.ts";
import { findService, type Holder } from "../supervisor/lock.ts";
import { type Parts, readParts } from "../supervisor/parts-record.ts";
import type { Terminal } from "../terminal.ts";
import { copiesDirOf, removeCopy } from "./copies.ts";
import { journalFileOf } from "./journal.ts";
import type { Units, UpdateDeps } from "./run-update.ts";
import { lackOf, SeenParts } from "./serving-parts.ts";

const POLL_MS = 200;
/** A service under load, or in the middle of a start, answers later than one request waits. */
const ANSWER_LIMIT_MS = 30_000;

/** `config`: that of the unit; `since`: when the update began. */
export function updateDepsOf(
  { config, terminal }: Context,
  { unit, since }: { unit: string; since: string },
): UpdateDeps {
  return {
    units: systemdUnits(terminal),
    journalFile: journalFileOf(copiesDirOf(unit)),
    ...placesOf(unit),
    waitUntilServes: (version) => waitUntilServes(config, version),
    putRowsBack: () => putSavedRowsBack(config, since),
    removeCopy,
    note: (line) => terminal.note(line),
  };
}

function systemdUnits(terminal: Terminal): Units {
  return {
    stop: (unit) => requireSystemctl("stop", `${unit}.service`),
    start: (unit) => startUnit(unit, terminal, "start"),
    reload: async (unit) => {
      await requireSystemctl("daemon-reload");
      await requireSystemctl("enable", "--quiet", `${unit}.service`);
    },
  };
}

/**
 * Whether the unit has a version to go back to: it runs, starts or stops, or has the data directory. An answer is not
 * asked for, as a service under load is late with it. A state that systemd does not say counts as one of these.
 */
export function isUp({ active }: Pick<UnitState, "active">, holder: Holder | undefined): boolean {
  return holder !== undefined || !["inactive", "failed"].includes(active);
}

/** Whether the service of a data directory answers within the limit. */
export async function waitForAnswer(
  config: CliConfig,
  terminal: Terminal,
  limitMs = ANSWER_LIMIT_MS,
): Promise<boolean> {
  const deadline = performance.now() + limitMs;
  for (let asked = 0; ; asked++) {
    if (await servingParts(config)) return true;
    if (performance.now() >= deadline) return false;
    if (asked === 0) terminal.note(`viv: the service does not answer; waiting up to ${limitMs / 1000} s …`);
    await sleep(POLL_MS);
  }
}

/** The processes of the service that answers; undefined if none does. */
async function servingParts(config: CliConfig): Promise<Parts | undefined> {
  const layout = layoutOf(config.dataDir, config.imagesDir);
  const holder = await findService(layout.lockFile);
  if (!holder || !(await askHealth(connectWithoutKey({ ...config, url: holder.url })))) return undefined;
  return await readParts(layout.partsFile);
}

/** Any answer will do without a version: there is nothing better to go back to. */
export async function waitUntilServes(
  config: CliConfig,
  version: string | undefined,
  limitMs = WAIT_FOR_START_MS,
): Promise<void> {
  const deadline = performance.now() + limitMs;
  const seen = new SeenParts();
  const isRunning = (pid: number) => identify(pid) !== undefined;
  let lack: string | undefined;
  while (performance.now() < deadline) {
    const parts = await servingParts(config);
    if (parts) {
      lack = version === undefined ? undefined : lackOf(parts, version, { now: Date.now(), isRunning });
      if (lack === undefined) return;
      const dying = seen.note(parts, HOPELESS_DEATHS);
      if (dying !== undefined) throw new CliError(`${dying} of ${version} ends again and again`);
    }
    await sleep(POLL_MS);
  }
  throw new CliError(
    lack ?? `the service of ${config.dataDir} does not answer within ${limitMs / 60_000} minutes`,
  );
}

async function putSavedRowsBack(config: CliConfig, since: string): Promise<string | undefined> {
  const file = await findSavedRows(layoutOf(config.dataDir).controlDir, since);
  if (file === undefined) return undefined;
  const schema = schemaOf(file);
  const put = await putRows(config, file, { keepAside: "update", unlessSchemaIs: schema });
  if (put.rows === undefined)
    return (
      put.heads && `the rows of before the update were put back by an earlier attempt${wordsOnHeads(put)}`
    );
  return `${put.rows} rows of before the update are back (schema ${schema}); those of the update are in the schema ${put.aside} of the database${wordsOnHeads(put)}`;
}

/**
 * The rows of before the first migration since then: every migration saves them, and the schema only grows. A link that
 * control's user may have made there counts for nothing.
 */
export async function findSavedRows(dir: string, since: string): Promise<string | undefined> {
  const names = (await readdir(dir)).filter((name) => SAVED_ROWS.test(name));
  const saved = await Promise.all(
    names.map(async (name) => ({ file: path.join(dir, name), facts: await lstat(path.join(dir, name)) })),
  );
  const ofUpdate = saved
    .filter(({ facts }) => facts.isFile() && facts.mtimeMs >= Date.parse(since))
    .map(({ file }) => file);
  return ofUpdate.toSorted((a, b) => schemaOf(a) - schemaOf(b))[0];
}

const schemaOf = (file: string) => Number(path.basename(file).split("-")[1]);

/** Starts a process outside of this one that continues the update if this process dies. */
export async function startWatcher(unit: string, copy: string): Promise<void> {
  await runHostCommand(path.join(copy, "scripts/continue-update"), [journalFileOf(copiesDirOf(unit)), unit]);
}
