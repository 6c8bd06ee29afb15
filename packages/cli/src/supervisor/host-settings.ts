/** Puts back the kernel settings that nodes have changed, by the records in the host's nft table, and removes the table. */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { changesIn, fileOfHostSetting, type HostSetting, valuesToPutBack } from "@vivarium/contract/node";
import { type CommandResult, runHostCommand } from "@vivarium/kit/host-command";

const TABLE = ["inet", "vivarium"];

/** Settings first: their records go with the table. If one cannot be put back the table stays, and a repetition knows. */
export async function removeHostTable(
  table: readonly string[] = TABLE,
  fileOf: (setting: HostSetting) => string = fileOfHostSetting,
): Promise<CommandResult> {
  const { stdout } = await runHostCommand("nft", ["-t", "list", "table", ...table]);
  for (const { setting, value } of valuesToPutBack(changesIn(stdout), (name) => read(fileOf(name))))
    await writeFile(fileOf(setting), value);
  return await runHostCommand("nft", ["delete", "table", ...table]);
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    // Its module was unloaded.
    return undefined;
  }
}
