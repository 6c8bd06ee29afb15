/**
 * The configuration with which a unit starts: its settings file alone says it. A variable of the shell in which an
 * update is called may belong to another program, such as the DATABASE_URL of an application.
 */
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import { type CliConfig, isSetting, readConfig } from "../config.ts";
import { readSettings, type Settings } from "../install/settings-file.ts";
import { checkSettings } from "../supervisor/check-settings.ts";

interface UnitSettings {
  dataDir: string;
  /** Text of the settings file; undefined where there is none. */
  settings: string | undefined;
}

export function configOfUnit(config: CliConfig, { dataDir, settings }: UnitSettings): CliConfig {
  return configWith(config, dataDir, readSettings(settings ?? ""));
}

/** As `configOfUnit`, from settings that were read already. */
export function configWith(config: CliConfig, dataDir: string, ofUnit: Settings): CliConfig {
  const childEnv = Object.fromEntries([
    ...Object.entries(config.childEnv).filter(([name]) => !isSetting(name, config.childEnv)),
    ...Object.entries(ofUnit).filter(([name]) => isSetting(name, ofUnit)),
  ]);
  const { VIV_IMAGES_DIR: imagesDir, DATABASE_URL: databaseUrl } = ofUnit;
  return {
    ...config,
    dataDir,
    childEnv,
    imagesDir: imagesDir || undefined,
    databaseUrl: databaseUrl || undefined,
  };
}

/** As `configOfUnit`, with the checks that the unit's start makes. An error names the line of the settings file. */
export async function checkedConfigOfUnit(
  config: CliConfig,
  { dataDir, settings, settingsFile }: UnitSettings & { settings: string; settingsFile: string },
): Promise<CliConfig> {
  try {
    // Reading them as the start does is a check too.
    readConfig(readSettings(settings));
    const ofUnit = configOfUnit(config, { dataDir, settings });
    await checkSettings(ofUnit);
    return ofUnit;
  } catch (cause) {
    throw new CliError(`${placeIn(settingsFile, settings, messageOf(cause))}: ${messageOf(cause)}`, {
      hint: "Nothing was changed. Mend that line, and install again.",
      cause,
    });
  }
}

/** The file, with the line that counts for the setting that a message begins with. */
function placeIn(file: string, settings: string, message: string): string {
  const name = /^[A-Z]\w+/.exec(message)?.[0];
  const number = settings.split("\n").findLastIndex((line) => line.trimStart().startsWith(`${name}=`)) + 1;
  return number > 0 ? `${file}, line ${number}` : file;
}
