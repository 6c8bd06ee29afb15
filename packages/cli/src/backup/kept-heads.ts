/**
 * Moves aside the heads of the audit log's chains that control keeps beside the keys (control/src/audit/kept-heads.ts).
 * Rows of before do not have them: with the file in place a verification reports `chain_shortened`, and no later head is kept.
 */
import { constants } from "node:fs";
import { open, rename } from "node:fs/promises";
import path from "node:path";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import type { Layout } from "../supervisor/layout.ts";

const HEADS_FILE = "heads.json";

/** For a service that does not run. Returns where the file is now; undefined if there was none. */
export async function moveHeadsAside({
  controlDir,
}: Pick<Layout, "controlDir">): Promise<string | undefined> {
  const dir = path.join(controlDir, "audit");
  const aside = `${HEADS_FILE}.before-restore-${new Date().toISOString().replaceAll(/\D/g, "").slice(0, 14)}`;
  try {
    // The directory is of control's user, which could have put a link in its place.
    await using handle = await open(dir, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    const opened = `/proc/self/fd/${handle.fd}`;
    await rename(path.join(opened, HEADS_FILE), path.join(opened, aside));
    await handle.sync();
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined;
    const file = path.join(dir, HEADS_FILE);
    throw new CliError(`the rows are back, but ${file} is not moved aside: ${messageOf(error)}`, {
      hint: "Remove it before the service starts: it has heads of the audit log that these rows lack.",
      cause: error,
    });
  }
  return path.join(dir, aside);
}
