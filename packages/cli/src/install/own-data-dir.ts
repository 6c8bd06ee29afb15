/** Whether a data directory is the service's: an uninstall removes nothing of one that is not. */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { CliError } from "../cli-error.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { SETTINGS_IN_DATA } from "./installed.ts";
import { ourData } from "./removal.ts";

/** Refuses a directory that has names as the service's, such as `log` and `run`, and nothing that only the service makes. */
export async function requireOwnDataDir(dataDir: string): Promise<void> {
  if (await hasOurSign(dataDir)) return;
  const named = await ourData(dataDir);
  if (named.length === 0) return;
  throw new CliError(`${dataDir} is no data directory of the service; nothing was changed`, {
    hint: `It has ${named.join(", ")}, but neither setup.stamp nor control/pepper, which set-up and the service make. Name another one with --data-dir.`,
  });
}

async function hasOurSign(dataDir: string): Promise<boolean> {
  if (["setup.stamp", "control/pepper"].some((name) => existsSync(path.join(dataDir, name)))) return true;
  const lock = await textOf(layoutOf(dataDir).lockFile);
  const settings = await textOf(path.join(dataDir, SETTINGS_IN_DATA));
  return /"startTicks":\d/.test(lock) || /^# Settings of \S+\.service\./.test(settings);
}

const textOf = (file: string) => readFile(file, "utf8").catch(() => "");
