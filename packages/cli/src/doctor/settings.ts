/** Checks the settings with which the service starts: those of the unit that has the data directory, else this environment's. */
import { messageOf } from "@vivarium/kit/unknown-error";
import type { CliConfig } from "../config.ts";
import { isSameDir } from "../install/directories.ts";
import { listInstalled } from "../install/installed.ts";
import { checkSettings } from "../supervisor/check-settings.ts";
import { configWith } from "../update/unit-config.ts";
import { type Finding, fail, ok } from "./finding.ts";

const NAME = "settings";

export interface ConfigInForce {
  config: CliConfig;
  /** File of the unit's settings. Absent: no unit has the data directory. */
  file?: string;
}

/** A unit's settings alone count for it, whatever the caller's environment has; named images are looked at all the same. */
export async function configInForce(config: CliConfig, list = listInstalled): Promise<ConfigInForce> {
  const unit = (await list()).find(({ dataDir }) => isSameDir(dataDir, config.dataDir));
  if (!unit) return { config };
  const ofUnit = configWith(config, unit.dataDir, unit.settings);
  const imagesDir = config.imagesDir ?? ofUnit.imagesDir;
  return { config: { ...ofUnit, imagesDir }, file: unit.settingsFile };
}

export async function checkServiceSettings(
  config: Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>,
  file = "this environment",
): Promise<Finding> {
  try {
    await checkSettings(config);
    return ok(NAME, `those of ${file} can be read`);
  } catch (error) {
    return fail(NAME, `${file}: ${messageOf(error)}`, "the service does not start", "Correct that setting.");
  }
}
