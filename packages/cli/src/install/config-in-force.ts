/**
 * The settings with which the service of a data directory starts: those of the unit that serves it, else those of this
 * environment. A variable of the shell in which somebody calls a command may belong to another program.
 */
import { type CliConfig, isSetting } from "../config.ts";
import type { Context } from "../context.ts";
import { configWith } from "../update/unit-config.ts";
import { isSameDir } from "./directories.ts";
import { type Installed, listInstalled } from "./installed.ts";
import type { Settings } from "./settings-file.ts";

export interface ConfigInForce {
  config: CliConfig;
  /** File of the unit's settings. Absent: no unit has the data directory. */
  file?: string;
  /** Names of settings that the environment has otherwise than the unit. They do not count. */
  contradicted?: string[];
}

/** Variables by which a command chooses a service, and those that the service's own processes are given. */
const NOT_COMPARED = ["VIV_DATA_DIR", "VIV_URL", "VIV_SUPERVISED"];

/** A unit's settings alone count for it, whatever the caller's environment has. */
export async function configInForce(config: CliConfig, list = listInstalled): Promise<ConfigInForce> {
  const unit = (await list()).find(({ dataDir }) => isSameDir(dataDir, config.dataDir));
  return unit ? configOf(config, unit) : { config };
}

/** As `configInForce`, of a unit that is known. */
export function configOf(
  config: CliConfig,
  { dataDir, settings, settingsFile }: Pick<Installed, "dataDir" | "settings" | "settingsFile">,
): Required<ConfigInForce> {
  return {
    config: configWith(config, dataDir, settings),
    file: settingsFile,
    contradicted: contradictedBy(settings, config),
  };
}

function contradictedBy(settings: Settings, { childEnv, databaseUrl }: CliConfig): string[] {
  const caller: Settings = { ...childEnv, ...(databaseUrl !== undefined && { DATABASE_URL: databaseUrl }) };
  const isCompared = (name: string) => name === "DATABASE_URL" || isSetting(name, caller);
  return Object.keys(caller)
    .filter((name) => isCompared(name) && !NOT_COMPARED.includes(name))
    .filter((name) => (caller[name] || "") !== (settings[name] || ""))
    .toSorted();
}

/** The context with the settings in force. Says which of the environment do not count, without their values. */
export async function withConfigInForce(
  { config: caller, terminal }: Context,
  list = listInstalled,
): Promise<Context> {
  const { config, ...facts } = await configInForce(caller, list);
  sayContradicted({ terminal }, facts);
  return { config, terminal };
}

export function sayContradicted(
  { terminal }: { terminal: Pick<Context["terminal"], "note"> },
  { file, contradicted = [] }: Omit<ConfigInForce, "config">,
): void {
  if (contradicted.length === 0) return;
  const names = contradicted.join(", ");
  terminal.note(
    `viv: ${file} counts here, and not the environment, which has ${contradicted.length === 1 ? "another value" : "other values"} of ${names}`,
  );
}
