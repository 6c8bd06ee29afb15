/** Checks the settings with which the service starts: those of the unit that has the data directory, else this environment's. */
import { messageOf } from "@vivarium/kit/unknown-error";
import type { CliConfig } from "../config.ts";
import { checkSettings } from "../supervisor/check-settings.ts";
import { type Finding, fail, ok } from "./finding.ts";

const NAME = "settings";

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
